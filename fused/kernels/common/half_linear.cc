#include "common/half_linear.h"

namespace mojo {

OrtStatus* ReadHalfLinear(const Api& api, OrtKernelContext* context, Layout layout, HalfLinearTensors* t) {
  Shape x, w, bias, y;
  if (OrtStatus* s = ReadInput(api, context, kHalfLinear, kHalfLinearX, &t->x, &x)) return s;
  if (OrtStatus* s = ReadInput(api, context, kHalfLinear, kHalfLinearW, &t->w, &w)) return s;
  if (OrtStatus* s = ReadOptionalInput(api, context, kHalfLinear, kHalfLinearBias, &t->bias, &bias)) return s;
  if (w.rank != 2) {
    return Errorf(api, "mojo.HalfLinear: W has shape %s; it must have two dimensions", ShapeText(w).text);
  }
  const bool by_rows = layout == Layout::kOutIn;
  t->n = static_cast<size_t>(w.dims[by_rows ? 0 : 1]);
  t->k = static_cast<size_t>(w.dims[by_rows ? 1 : 0]);
  if (x.rank == 0 || static_cast<size_t>(x.dims[x.rank - 1]) != t->k) {
    return Errorf(api, "mojo.HalfLinear: X has shape %s; its last dimension must be %zu, with W of shape %s",
                  ShapeText(x).text, t->k, ShapeText(w).text);
  }
  if (t->bias != nullptr && (bias.rank != 1 || static_cast<size_t>(bias.dims[0]) != t->n)) {
    return Errorf(api, "mojo.HalfLinear: bias has shape %s; it must be [%zu], with W of shape %s", ShapeText(bias).text,
                  t->n, ShapeText(w).text);
  }
  t->rows = 1;
  y.rank = x.rank;
  for (size_t i = 0; i + 1 < x.rank; ++i) {
    y.own[i] = x.dims[i];
    t->rows *= static_cast<size_t>(x.dims[i]);
  }
  y.own[x.rank - 1] = static_cast<int64_t>(t->n);
  y.dims = y.own;
  return MakeOutput(api, context, kHalfLinear, 0, y, &t->y);
}

}  // namespace mojo
