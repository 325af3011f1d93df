#include "linear/cuda/quantized.h"

namespace mojo {

MojoQuantizedWeights ToMojoWeights(const QuantizedAttributes& a, const QuantizedTensors& t) {
  const MojoScales scales = a.code == Code::kE4m3 ? kMojoPanelScales
                            : a.scale == kF16     ? kMojoHalfScales
                            : a.scale == kI8      ? kMojoTwofoldScales
                            : a.scale == kU8      ? kMojoExponentScales
                                                  : kMojoFloatScales;
  return {.codes = t.codes,
          .scale = t.scale,
          .minus = t.minus,
          .super_scale = t.super_scale,
          .super_minus = t.super_minus,
          .n = a.n,
          .k = a.k,
          .block = a.block,
          .code = a.code,
          .scales = scales,
          .zero = static_cast<int>(a.zero)};
}

OrtStatus* GetWeights(const CallBase& call, const QuantizedPlace& place, const QuantizedAttributes& attributes,
                      MojoQuantizedWeights* weights) {
  QuantizedTensors tensors;
  if (OrtStatus* s = GetQuantized(call, place, attributes, &tensors)) return s;
  *weights = ToMojoWeights(attributes, tensors);
  return nullptr;
}

OrtStatus* CheckCode(const Api& api, const OpDef& def, Code code, Activations activations, Packing packing) {
  if (code != Code::kE4m3 || (activations == Activations::kFp8 && MojoCudaMultipliesE4M3(packing))) return nullptr;
  return Errorf(
      api,
      "mojo.%s: there is no CUDA kernel of it for code=e4m3, but on Hopper with activations=fp8 and gates; open "
      "the session without the CUDA provider",
      def.name);
}

}  // namespace mojo
