// Types, attributes and shape rules of RMSNorm and AddRMSNorm.
#include <math.h>
#include <stdio.h>

#include "common/ops.h"

namespace mojo {
namespace {

// Equal types serve both values of scale_after_cast. Unequal ones serve one: the product takes the
// type of the output, which is the narrow one in every export seen.
constexpr TypeCombo kNormTypes[] = {
    {{kF32, kF32}, {kF32}},   {{kF16, kF16}, {kF16}}, {{kBF16, kBF16}, {kBF16}}, {{kF16, kF32}, {kF16}},
    {{kBF16, kF32}, {kBF16}}, {{kF32, kF16}, {kF16}}, {{kF32, kBF16}, {kBF16}},
};
constexpr TypeCombo kAddNormTypes[] = {
    {{kF32, kF32, kF32}, {kF32, kF32}},      {{kF16, kF16, kF16}, {kF16, kF16}},
    {{kBF16, kBF16, kBF16}, {kBF16, kBF16}}, {{kF16, kF16, kF32}, {kF16, kF16}},
    {{kBF16, kBF16, kF32}, {kBF16, kBF16}},  {{kF32, kF32, kF16}, {kF16, kF32}},
    {{kF32, kF32, kBF16}, {kBF16, kF32}},
};

template <size_t N>
constexpr size_t Length(const TypeCombo (&)[N]) {
  return N;
}

}  // namespace

const OpDef kRMSNorm = {"RMSNorm", {"X", "scale"}, 2, 2, 1, 1, kNormTypes, Length(kNormTypes)};
const OpDef kAddRMSNorm = {"AddRMSNorm", {"X", "residual", "scale"}, 3, 3, 2, 1, kAddNormTypes, Length(kAddNormTypes)};

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

OrtStatus* CheckSame(const Api& api, const OpDef& def, const char* a_name, const Shape& a, const char* b_name,
                     const Shape& b) {
  bool same = a.rank == b.rank;
  for (size_t i = 0; same && i < a.rank; ++i) same = a.dims[i] == b.dims[i];
  if (same) return nullptr;
  return Errorf(api,
                "mojo.%s: %s has shape %s and %s %s; both must have the same shape (there is no "
                "broadcasting)",
                def.name, a_name, ShapeText(a).text, b_name, ShapeText(b).text);
}

}  // namespace mojo
