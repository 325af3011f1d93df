// Attributes and shape rules of RotaryEmbedding, and the shape rules of NormRotary.
#include "common/rotary_embedding.h"

#include <stdio.h>

namespace mojo {
namespace {

// StaticLastDim is the last dim of input X where the model fixes it, else -1.
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

// CheckStaticWidth checks the width of what is rotated against the last dim of X where the model fixes it.
OrtStatus* CheckStaticWidth(const KernelInit& init, const RotaryEmbeddingAttributes& attributes) {
  const int64_t last = StaticLastDim(init);
  if (last <= 0 || last >= attributes.rotary_dim) return nullptr;
  char expected[96];
  snprintf(expected, sizeof(expected), "at most %lld, the last dimension of X", static_cast<long long>(last));
  return BadAttribute(init, "rotary_dim", attributes.rotary_dim, expected);
}

// Steps returns the step of a table (cos or sin) along each leading dim of X, and whether it is wide.
OrtStatus* Steps(const Api& api, const OpDef& def, const char* name, const Shape& x, int64_t rotary_dim,
                 const Shape& table, size_t* steps, bool* wide) {
  const int64_t last = table.rank > 0 ? table.dims[table.rank - 1] : 0;
  bool ok = table.rank >= 1 && table.rank <= x.rank && (last == rotary_dim || last == rotary_dim / 2);
  size_t step = static_cast<size_t>(last);
  for (size_t back = 2; ok && back <= x.rank; ++back) {
    const size_t i = x.rank - back;
    steps[i] = 0;
    if (back > table.rank) continue;
    const int64_t dim = table.dims[table.rank - back];
    if (dim == x.dims[i]) {
      steps[i] = step;
    } else if (dim != 1) {
      ok = false;
    }
    step *= static_cast<size_t>(dim);
  }
  *wide = last == rotary_dim;
  if (ok) return nullptr;
  return Errorf(api,
                "mojo.%s: %s has shape %s and X %s; %s must broadcast to X, with a "
                "last dimension of %lld or %lld (rotary_dim or half of it)",
                def.name, name, ShapeText(table).text, ShapeText(x).text, name, static_cast<long long>(rotary_dim),
                static_cast<long long>(rotary_dim / 2));
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

OrtStatus* LayOutRotary(const Api& api, const OpDef& def, const RotaryEmbeddingAttributes& attributes, const Shape& x,
                        const Shape& cos, const Shape& sin, RotaryLayout* out) {
  const int64_t rotary_dim = attributes.rotary_dim;
  if (x.rank == 0 || x.dims[x.rank - 1] < rotary_dim) {
    return Errorf(api,
                  "mojo.%s: X has shape %s and rotary_dim is %lld; the last dimension "
                  "of X must be at least rotary_dim",
                  def.name, ShapeText(x).text, static_cast<long long>(rotary_dim));
  }
  size_t cos_step[kMaxRank];
  size_t sin_step[kMaxRank];
  if (OrtStatus* s = Steps(api, def, "cos", x, rotary_dim, cos, cos_step, &out->cos_wide)) return s;
  if (OrtStatus* s = Steps(api, def, "sin", x, rotary_dim, sin, sin_step, &out->sin_wide)) return s;
  out->width = static_cast<size_t>(x.dims[x.rank - 1]);
  out->rotated = static_cast<size_t>(rotary_dim);
  out->first = attributes.last ? out->width - out->rotated : 0;
  out->rows = 1;
  out->rank = 0;
  for (size_t i = 0; i + 1 < x.rank; ++i) {
    const size_t dim = static_cast<size_t>(x.dims[i]);
    out->rows *= dim;
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
  if (out->rank == 0) {
    out->dims[0] = 1;
    out->cos_step[0] = 0;
    out->sin_step[0] = 0;
    out->rank = 1;
  }
  return nullptr;
}

}  // namespace mojo
