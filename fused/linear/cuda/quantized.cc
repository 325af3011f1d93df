#include "linear/cuda/quantized.h"

namespace mojo {

void SetWeights(const QuantizedAttributes& a, const QuantizedTensors& t, MojoQuantizedWeights* w) {
  w->codes = t.codes;
  w->scale = t.scale;
  w->minus = t.minus;
  w->super_scale = t.super_scale;
  w->super_minus = t.super_minus;
  w->n = a.n;
  w->k = a.k;
  w->block = a.block;
  w->code = a.code == Code::kInt4   ? kMojoInt4
            : a.code == Code::kInt8 ? kMojoInt8
            : a.code == Code::kE4m3 ? kMojoE4M3
                                    : kMojoE2M1;
  w->scales = a.code == Code::kE4m3 ? kMojoPanelScales
              : a.scale == kF16     ? kMojoHalfScales
              : a.scale == kI8      ? kMojoTwofoldScales
              : a.scale == kU8      ? kMojoExponentScales
                                    : kMojoFloatScales;
  w->zero = static_cast<int>(a.zero);
}

OrtStatus* CheckCode(const Api& api, const OpDef& def, Code code, Activations activations, MojoPacking packing) {
  if (code != Code::kE4m3 || (activations == Activations::kFp8 && MojoCudaMultipliesE4M3(packing))) return nullptr;
  return Errorf(
      api,
      "mojo.%s: there is no CUDA kernel of it for code=e4m3, but on Hopper with activations=fp8 and gates; open "
      "the session without the CUDA provider",
      def.name);
}

MojoRounding ToMojoRounding(Activations activations) {
  switch (activations) {
    case Activations::kInt16: return kMojoToInt16;
    case Activations::kInt8: return kMojoToInt8;
    case Activations::kFp8: return kMojoToE4M3;
    default: return kMojoNotRounded;
  }
}

}  // namespace mojo
