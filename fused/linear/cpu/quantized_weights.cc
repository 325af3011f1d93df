#include "linear/cpu/quantized_weights.h"

#include <stdlib.h>

#include "cpu/isa.h"

namespace mojo {

const LinearFns* TheLinear() {
  static const LinearFns* const fns = BestLinear(getenv("MOJO_CPU_ISA"));
  return fns;
}

QuantizedWeights ToWeights(const QuantizedAttributes& a, const QuantizedTensors& t) {
  QuantizedWeights w{static_cast<const uint8_t*>(t.codes),
                     t.scale,
                     t.minus,
                     t.super_scale,
                     t.super_minus,
                     a.n,
                     a.k,
                     a.block,
                     a.code,
                     kFloatScales,
                     static_cast<float>(a.zero),
                     0};
  if (a.code == Code::kInt4) w.shift = 8 - w.zero;
  if (a.code == Code::kInt8) w.shift = 128 - w.zero;
  if (a.scale == kF16) w.scales = kHalfScales;
  if (a.scale == kI8) w.scales = kTwofoldScales;
  if (a.scale == kU8) w.scales = kExponentScales;
  return w;
}

QuantizedWeights PanelsOf(const QuantizedWeights& weights, size_t first, size_t count) {
  const auto forward = [](const void* data, size_t bytes) -> const void* {
    return data == nullptr ? nullptr : static_cast<const char*>(data) + bytes;
  };
  const size_t scale_size = weights.scales == kFloatScales ? 4 : weights.scales == kHalfScales ? 2 : 1;
  const bool floats = weights.code == Code::kE4m3;
  const size_t scales = first * (floats ? 1 : kPanel) * (weights.k / weights.block) * scale_size;
  const size_t supers = first * kPanel * (weights.k / kSuperBlock) * 2;
  QuantizedWeights w = weights;
  w.codes += first * kPanel * (weights.code == Code::kInt8 || floats ? weights.k : weights.k / 2);
  w.scale = forward(w.scale, scales);
  w.minus = forward(w.minus, scales);
  w.super_scale = forward(w.super_scale, supers);
  w.super_minus = forward(w.super_minus, supers);
  w.n = count * kPanel;
  return w;
}

}  // namespace mojo
