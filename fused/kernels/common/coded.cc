#include "common/coded.h"

namespace mojo {
namespace {

constexpr int64_t kPanelRows = 16, kBlockColumns = 32, kSuperColumns = 256, kFloatColumns = 128;

// TakesByte reports whether codes take a byte each.
bool TakesByte(Code code) { return code == Code::kInt8 || code == Code::kE4m3; }

// TakesBlock reports whether a code goes with blocks of so many columns.
bool TakesBlock(Code code, int64_t block) {
  if (code == Code::kE4m3) return block == kFloatColumns;
  return block == kBlockColumns || (block == 16 && code != Code::kE2m1);
}

}  // namespace

OrtStatus* ReadCodedAttributes(const KernelInit& init, const CodedPlace& place, CodedAttributes* out) {
  AttributeReader read(init);
  out->scale = init.types.inputs[place.inputs[1]];
  out->code = read.Choice<Code>(place.code);
  const int64_t zero = read.Int(place.zero), block = read.Int(place.block);
  const int64_t n = place.n == nullptr ? 1 : read.Int(place.n), k = read.Int(place.k);
  const int64_t most = out->code == Code::kInt4 ? 15 : out->code == Code::kInt8 ? 255 : 0;
  if (zero < 0 || zero > most) read.FailInt(place.zero, zero, "a code; 0 with code=e2m1 and e4m3");
  if (!TakesBlock(out->code, block)) {
    read.FailInt(place.block, block, "32, or 16 with a code of integers, and 128 with code=e4m3");
  }
  // Sizes beyond these have no tensor; products of them do not overflow.
  if (n < 1 || n > int64_t{1} << 31) read.FailInt(place.n, n, "from 1 to 2^31");
  const bool wide = out->code == Code::kE4m3;
  const int64_t multiple = out->scale == kI8 ? kSuperColumns : wide ? kFloatColumns : kBlockColumns;
  if (k < multiple || k % multiple != 0 || k > int64_t{1} << 31) {
    read.FailInt(place.k, k,
                 out->scale == kI8 ? "a multiple of 256, scales being int8"
                 : wide            ? "a multiple of 128, the code being e4m3"
                                   : "a multiple of 32");
  }
  if (wide && out->scale != kF32) read.Fail(place.code, "\"e4m3\"", "e4m3 with scales of float32 alone");
  if ((out->code == Code::kE2m1) != (out->scale == kU8)) {
    read.Fail(place.code, out->code == Code::kE2m1 ? "\"e2m1\"" : "of integers",
              "e2m1 with scales of uint8, and no other code");
  }
  out->zero = static_cast<size_t>(zero);
  out->block = static_cast<size_t>(block);
  out->n = static_cast<size_t>(n);
  out->k = static_cast<size_t>(k);
  return read.status;
}

OrtStatus* CheckActivations(AttributeReader* read, Activations activations, Code code) {
  const bool floats = code == Code::kE4m3;
  if (activations != Activations::kFloat && (activations == Activations::kFp8) != floats) {
    read->Fail("activations", floats ? "an integer" : "\"fp8\"",
               floats ? "float or fp8, the code being e4m3" : "float, int16 or int8, the code being no e4m3");
  }
  return read->status;
}

OrtStatus* ReadCoded(const Api& api, OrtKernelContext* context, const OpDef& def, const CodedPlace& place,
                     const CodedAttributes& attributes, size_t* experts, CodedTensors* out) {
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
