// Types, attributes and shape rules of RMSNorm and AddRMSNorm.
#include "common/rms_norm.h"

#include <math.h>
#include <stdio.h>

namespace mojo {
OrtStatus* ReadAttributes(const KernelInit& init, RMSNormAttributes* out) {
  AttributeReader read(init);
  out->axis = read.Int("axis");
  if (out->axis >= 0 || out->axis < -static_cast<int64_t>(kMaxRank)) {
    char found[64];
    snprintf(found, sizeof(found), "%lld", static_cast<long long>(out->axis));
    read.Fail("axis", found, "a negative number, -1 for the last dimension");
  }
  ReadNorm(&read, init.def.input_count - 1, &out->epsilon, &out->scale_after_cast);
  return read.status;
}

void ReadNorm(AttributeReader* read, size_t scale, float* epsilon, bool* scale_after_cast) {
  char found[64];
  *epsilon = read->Float("epsilon");
  const int64_t after = read->Int("scale_after_cast");
  *scale_after_cast = after != 0;
  if (!(*epsilon >= 0) || isinf(*epsilon)) {
    snprintf(found, sizeof(found), "%g", static_cast<double>(*epsilon));
    read->Fail("epsilon", found, "a finite number of at least 0");
  }
  if (after != 0 && after != 1) {
    snprintf(found, sizeof(found), "%lld", static_cast<long long>(after));
    read->Fail("scale_after_cast", found, "0 or 1");
  }
  const ONNXTensorElementDataType x = read->init.types.inputs[0];
  const ONNXTensorElementDataType s = read->init.types.inputs[scale];
  if (x != s && s == kF32 && after != 0) {
    read->Fail("scale_after_cast", "1", "0 with a float32 scale and a narrower X (the result has X's type)");
  }
  if (x != s && x == kF32 && after == 0) {
    read->Fail("scale_after_cast", "0", "1 with a float32 X and a narrower scale (the result has scale's type)");
  }
}

OrtStatus* SplitAtAxis(const Api& api, const OpDef& def, const Shape& x, int64_t axis, size_t* rows, size_t* width) {
  const size_t normed = static_cast<size_t>(-axis);
  if (x.rank < normed) {
    return Errorf(api, "mojo.%s: X has shape %s; axis %lld needs at least %zu dimensions", def.name, ShapeText(x).text,
                  static_cast<long long>(axis), normed);
  }
  *rows = 1;
  *width = 1;
  for (size_t i = 0; i < x.rank - normed; ++i) *rows *= static_cast<size_t>(x.dims[i]);
  for (size_t i = x.rank - normed; i < x.rank; ++i) *width *= static_cast<size_t>(x.dims[i]);
  return nullptr;
}

OrtStatus* CheckScale(const Api& api, const OpDef& def, const Shape& x, int64_t axis, const Shape& scale) {
  const size_t normed = static_cast<size_t>(-axis);
  bool same = scale.rank == normed && x.rank >= normed;
  for (size_t i = 0; same && i < normed; ++i) {
    same = scale.dims[i] == x.dims[x.rank - normed + i];
  }
  if (same) return nullptr;
  const size_t first = x.rank >= normed ? x.rank - normed : 0;
  return Errorf(api, "mojo.%s: scale has shape %s and X %s; with axis %lld scale must be %s", def.name,
                ShapeText(scale).text, ShapeText(x).text, static_cast<long long>(axis),
                ShapeText(x.dims + first, x.rank - first).text);
}

}  // namespace mojo
