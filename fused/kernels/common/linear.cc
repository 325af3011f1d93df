#include "common/linear.h"

namespace mojo {

OrtStatus* ReadAttributes(const KernelInit& init, LinearForm* out) {
  LinearAttributes a;
  if (OrtStatus* s = ReadAttributes(init, &a)) return s;
  out->activations = a.activations;
  return FindQuantized(init, PlaceFrom(kLinearCodes), a.weights, &out->weights);
}

OrtStatus* ReadLinear(const Api& api, OrtKernelContext* context, const QuantizedAttributes& attributes,
                      LinearTensors* t) {
  Shape x_shape, bias_shape, y_shape;
  const size_t n = attributes.n, k = attributes.k;
  if (OrtStatus* s = ReadInput(api, context, kLinear, kLinearX, &t->x, &x_shape)) return s;
  if (OrtStatus* s = ReadQuantized(api, context, kLinear, kLinearCodes, attributes, &t->weights)) return s;
  if (OrtStatus* s = ReadOptionalInput(api, context, kLinear, kLinearBias, &t->bias, &bias_shape)) return s;
  if (x_shape.rank == 0 || static_cast<size_t>(x_shape.dims[x_shape.rank - 1]) != k) {
    return Errorf(api, "mojo.%s: X has shape %s; its last dimension must be %zu, which is k", kLinear.name,
                  ShapeText(x_shape).text, k);
  }
  if (t->bias != nullptr && (bias_shape.rank != 1 || static_cast<size_t>(bias_shape.dims[0]) != n)) {
    return Errorf(api, "mojo.%s: bias has shape %s; it must be [%zu], n being that", kLinear.name,
                  ShapeText(bias_shape).text, n);
  }
  t->rows = 1;
  y_shape.rank = x_shape.rank;
  for (size_t i = 0; i + 1 < x_shape.rank; ++i) {
    y_shape.own[i] = x_shape.dims[i];
    t->rows *= static_cast<size_t>(x_shape.dims[i]);
  }
  y_shape.own[x_shape.rank - 1] = static_cast<int64_t>(n);
  y_shape.dims = y_shape.own;
  return MakeOutput(api, context, kLinear, 0, y_shape, &t->y);
}

OrtStatus* EmbeddingShape(const Api& api, const Shape& ids, const QuantizedAttributes& attributes, Shape* y) {
  if (ids.rank == kMaxRank) {
    return Errorf(api, "mojo.%s: ids has rank %zu; at most %zu dimensions are supported", kEmbedding.name, ids.rank,
                  kMaxRank - 1);
  }
  for (size_t i = 0; i < ids.rank; ++i) y->own[i] = ids.dims[i];
  y->own[ids.rank] = static_cast<int64_t>(attributes.k);
  y->dims = y->own;
  y->rank = ids.rank + 1;
  return nullptr;
}

}  // namespace mojo
