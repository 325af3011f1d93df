// Attributes and layout of RotaryEmbedding and NormRotary.
#include "rotary/common/rotary_embedding.h"

#include <stdio.h>

namespace mojo {
namespace {

// StaticLastDim is the last dim of input X if the model fixes it, else -1.
int64_t StaticLastDim(const KernelInit& init) {
  const OrtApi& ort = *init.api.ort;
  OrtTypeInfo* type = nullptr;
  int64_t dims[kMaxRank];
  int64_t last = -1;
  size_t rank = 0;
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  OrtStatus* status = ort.KernelInfo_GetInputTypeInfo(init.info, 0, &type);
  if (status == nullptr) status = ort.CastTypeInfoToTensorInfo(type, &tensor);
  if (status == nullptr && tensor != nullptr) {
    status = ort.GetDimensionsCount(tensor, &rank);
    if (status == nullptr && rank > 0 && rank <= kMaxRank) {
      status = ort.GetDimensions(tensor, dims, rank);
      if (status == nullptr) last = dims[rank - 1];
    }
  }
  if (status != nullptr) ort.ReleaseStatus(status);
  if (type != nullptr) ort.ReleaseTypeInfo(type);
  return last;
}

// CheckStaticWidth checks the rotated width against the last dim of X if the model fixes it.
OrtStatus* CheckStaticWidth(const KernelInit& init, const RotaryEmbeddingAttributes& attributes) {
  const int64_t last = StaticLastDim(init);
  if (last <= 0 || last >= attributes.rotary_dim) return nullptr;
  char expected[96];
  snprintf(expected, sizeof(expected), "at most %lld, the last dimension of X", static_cast<long long>(last));
  return BadAttribute(init, "rotary_dim", attributes.rotary_dim, expected);
}

// Steps writes the step of a table (cos or sin) along each leading dim of X.
void Steps(const Shape& x, const Shape& table, size_t* steps) {
  auto step = static_cast<size_t>(table.dims[table.rank - 1]);
  for (size_t back = 2; back <= x.rank; ++back) {
    const auto dim = static_cast<size_t>(back > table.rank ? 1 : table.dims[table.rank - back]);
    steps[x.rank - back] = dim == 1 ? 0 : step;
    step *= dim;
  }
}

}  // namespace

OrtStatus* ReadAttributes(const KernelInit& init, RotaryEmbeddingAttributes* out) {
  if (OrtStatus* s = ReadAttributesInto(init, out, sizeof(*out))) return s;
  return CheckStaticWidth(init, *out);
}

OrtStatus* ReadAttributes(const KernelInit& init, NormRotaryAttributes* out) {
  if (OrtStatus* s = ReadAttributesInto(init, out, sizeof(*out))) return s;
  return CheckStaticWidth(init, out->rotary);
}

RotaryLayout LayOutRotary(const RotaryEmbeddingAttributes& attributes, const Shape& x, const Shape& cos,
                          const Shape& sin) {
  static_assert(kMaxRotaryDims >= kMaxRank, "the leading dims of a tensor must fit");
  RotaryLayout made, *const out = &made;
  size_t cos_step[kMaxRank], sin_step[kMaxRank];
  Steps(x, cos, cos_step);
  Steps(x, sin, sin_step);
  out->width = static_cast<size_t>(x.dims[x.rank - 1]);
  out->rotated = static_cast<size_t>(attributes.rotary_dim);
  out->first = attributes.last ? out->width - out->rotated : 0;
  out->cos_wide = cos.dims[cos.rank - 1] == attributes.rotary_dim;
  out->sin_wide = sin.dims[sin.rank - 1] == attributes.rotary_dim;
  for (size_t i = 0; i + 1 < x.rank; ++i) {
    const auto dim = static_cast<size_t>(x.dims[i]);
    if (dim == 1) continue;
    if (out->rank > 0) {
      // One step along the outer dim equals dim steps along this one: they are one longer dim.
      const size_t last = out->rank - 1;
      if (out->cos_step[last] == cos_step[i] * dim && out->sin_step[last] == sin_step[i] * dim) {
        out->dims[last] *= dim;
        out->cos_step[last] = cos_step[i];
        out->sin_step[last] = sin_step[i];
        continue;
      }
    }
    out->dims[out->rank] = dim;
    out->cos_step[out->rank] = cos_step[i];
    out->sin_step[out->rank] = sin_step[i];
    ++out->rank;
  }
  if (out->rank == 0) out->dims[out->rank++] = 1;
  return made;
}

}  // namespace mojo
