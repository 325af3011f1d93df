#include "linear/common/quantized.h"

namespace mojo {
namespace {

constexpr int64_t kSuperColumns = 256;

}  // namespace

OrtStatus* FindQuantized(const KernelInit& init, const QuantizedPlace& place, const EmbeddingAttributes& a,
                         QuantizedAttributes* out) {
  const auto scale = init.types.inputs[place.inputs[1]];
  if (scale == kI8 && a.k % kSuperColumns != 0) {
    return BadAttribute(init, place.k, a.k, "a multiple of 256, scales being int8");
  }
  if (a.code == Code::kE4m3 && scale != kF32) {
    return BadAttribute(init, place.code, "\"e4m3\"", "another code, or scales of float32");
  }
  if ((a.code == Code::kE2m1) != (scale == kU8)) {
    return BadAttribute(init, place.code, a.code == Code::kE2m1 ? "\"e2m1\"" : "not \"e2m1\"",
                        "\"e2m1\" with scales of uint8, and no other code");
  }
  *out = {a.code,
          static_cast<size_t>(a.zero),
          static_cast<size_t>(a.block),
          static_cast<size_t>(a.n),
          static_cast<size_t>(a.k),
          scale};
  return nullptr;
}

OrtStatus* ReadAttributes(const KernelInit& init, LinearForm* out) {
  LinearAttributes& a = *out;
  if (OrtStatus* s = ReadAttributes(init, &a)) return s;
  return FindQuantized(init, PlaceFrom(kLinearCodes), a.weights, &out->matrix);
}

OrtStatus* ReadAttributes(const KernelInit& init, EmbeddingForm* out) {
  EmbeddingAttributes& a = *out;
  if (OrtStatus* s = ReadAttributes(init, &a)) return s;
  return FindQuantized(init, PlaceFrom(kEmbeddingCodes), a, &out->matrix);
}

OrtStatus* GetQuantized(const CallBase& call, const QuantizedPlace& place, const QuantizedAttributes& attributes,
                        QuantizedTensors* out) {
  const char* const op = call.def().name;
  const auto at = [&](size_t i) { return call.data[place.inputs[i]]; };
  *out = {at(0), at(1), at(2), at(3), at(4)};
  const bool twofold = attributes.scale == kI8;
  if (twofold != (out->super_scale != nullptr)) {
    return Errorf(call.api(), "mojo.%s: super_scale is given with scales of int8, and with no others", op);
  }
  if ((attributes.scale == kU8 || attributes.code == Code::kE4m3) && out->minus != nullptr) {
    return Errorf(call.api(), "mojo.%s: minus is given with codes of floating point, which have none", op);
  }
  if ((twofold && out->minus != nullptr) != (out->super_minus != nullptr)) {
    return Errorf(call.api(), "mojo.%s: super_minus is given if and only if minus and super_scale are", op);
  }
  return nullptr;
}

}  // namespace mojo
