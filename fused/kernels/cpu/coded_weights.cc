#include "cpu/coded_weights.h"

#include <stdlib.h>

#include "cpu/isa.h"

namespace mojo {

const LinearFns* TheLinear() {
  static const LinearFns* const fns = BestLinear(getenv("MOJO_CPU_ISA"));
  return fns;
}

CodedWeights ToWeights(const CodedAttributes& a, const CodedTensors& t) {
  CodedWeights w{static_cast<const uint8_t*>(t.codes),
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
  }
  if (a.scale == kF16) w.scales = kHalfScales;
  if (a.scale == kI8) w.scales = kTwofoldScales;
  if (a.scale == kU8) w.scales = kExponentScales;
  return w;
}

}  // namespace mojo
