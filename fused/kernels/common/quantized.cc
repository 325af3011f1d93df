#include "common/quantized.h"

namespace mojo {
namespace {

constexpr int64_t kPanelRows = 16, kBlockColumns = 32, kSuperColumns = 256, kFloatColumns = 128;

// TakesByte reports whether codes take a byte each.
bool TakesByte(Code code) { return code == Code::kInt8 || code == Code::kE4m3; }

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

OrtStatus* ReadAttributes(const KernelInit& init, QuantizedAttributes* out) {
  EmbeddingAttributes a;
  if (OrtStatus* s = ReadAttributes(init, &a)) return s;
  return FindQuantized(init, PlaceFrom(kEmbeddingCodes), a, out);
}

OrtStatus* ReadQuantized(const Api& api, OrtKernelContext* context, const OpDef& def, const QuantizedPlace& place,
                         const QuantizedAttributes& attributes, size_t* experts, QuantizedTensors* out) {
  const auto n = static_cast<int64_t>(attributes.n), k = static_cast<int64_t>(attributes.k);
  const int64_t panels = (n + kPanelRows - 1) / kPanelRows, blocks = k / static_cast<int64_t>(attributes.block);
  const int64_t groups = TakesByte(attributes.code) ? 8 : 4;
  const void** const to[] = {&out->codes, &out->scale, &out->minus, &out->super_scale, &out->super_minus};
  for (size_t i = 0; i < 5; ++i) {
    Shape shape;
    const auto read = i < 2 ? ReadInput : ReadOptionalInput;
    if (OrtStatus* s = read(api, context, def, place.inputs[i], to[i], &shape)) return s;
    if (*to[i] == nullptr) continue;
    // The first of these is there with experts alone.
    int64_t all[5] = {0, panels, i < 3 ? blocks : k / kSuperColumns, kPanelRows, 4 * kPanelRows};
    size_t rank = 3;
    int64_t* want = all + 1;
    if (i == 0) {
      want[1] = k / kBlockColumns;
      want[2] = groups;
      rank = 4;
    } else if (attributes.code == Code::kE4m3) {
      want[2] = 1;
    }
    if (experts != nullptr) {
      if (i == 0) *experts = shape.rank == 0 ? 0 : static_cast<size_t>(shape.dims[0]);
      want = all;
      want[0] = static_cast<int64_t>(*experts);
      ++rank;
    }
    bool same = shape.rank == rank;
    for (size_t d = 0; same && d < rank; ++d) same = shape.dims[d] == want[d];
    if (!same) {
      return Errorf(api, "mojo.%s: %s has shape %s; with n %lld, k %lld and block %zu it must be %s", def.name,
                    def.input_names[place.inputs[i]], ShapeText(shape).text, static_cast<long long>(n),
                    static_cast<long long>(k), attributes.block, ShapeText(want, rank).text);
    }
  }
  const bool twofold = attributes.scale == kI8;
  if (twofold != (out->super_scale != nullptr)) {
    return Errorf(api, "mojo.%s: super_scale is given with scales of int8, and with no others", def.name);
  }
  if ((attributes.scale == kU8 || attributes.code == Code::kE4m3) && out->minus != nullptr) {
    return Errorf(api, "mojo.%s: minus is given with codes of floating point, which have none", def.name);
  }
  if ((twofold && out->minus != nullptr) != (out->super_minus != nullptr)) {
    return Errorf(api, "mojo.%s: super_minus is given if and only if minus and super_scale are", def.name);
  }
  return nullptr;
}

}  // namespace mojo
