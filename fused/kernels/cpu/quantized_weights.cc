#include "cpu/quantized_weights.h"

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
                     kInt4Codes,
                     kFloatScales,
                     static_cast<float>(a.zero),
                     8 - static_cast<float>(a.zero)};
  if (a.code == Code::kInt8) {
    w.code = kInt8Codes;
    w.shift = 128 - w.zero;
  } else if (a.code == Code::kE2m1) {
    w.code = kE2M1Codes;
    w.shift = 0;
  } else if (a.code == Code::kE4m3) {
    w.code = kE4M3Codes;
    w.shift = 0;
  }
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
  const bool floats = weights.code == kE4M3Codes;
  const size_t scales = first * (floats ? 1 : kPanel) * (weights.k / weights.block) * scale_size;
  const size_t supers = first * kPanel * (weights.k / kSuperBlock) * 2;
  QuantizedWeights w = weights;
  w.codes += first * kPanel * (weights.code == kInt8Codes || floats ? weights.k : weights.k / 2);
  w.scale = forward(w.scale, scales);
  w.minus = forward(w.minus, scales);
  w.super_scale = forward(w.super_scale, supers);
  w.super_minus = forward(w.super_minus, supers);
  w.n = count * kPanel;
  return w;
}

ActivationKind ToActivationKind(Activations activations) {
  switch (activations) {
    case Activations::kInt8: return kInt8Activations;
    case Activations::kInt16: return kInt16Activations;
    case Activations::kFp8: return kFloat8Activations;
    default: return kFloatActivations;
  }
}

}  // namespace mojo
