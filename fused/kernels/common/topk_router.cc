// Shape rules of TopKRouter.
#include "common/topk_router.h"

namespace mojo {
namespace {

// CheckRouter checks the shapes, and sets the sizes; bias is null where it is left out.
OrtStatus* CheckRouter(const Api& api, const TopKRouterAttributes& attributes, const Shape& logits, const Shape* bias,
                       RouterTensors* out) {
  if (logits.rank == 0) return Errorf(api, "mojo.TopKRouter: logits have rank 0; at least 1 is needed");
  const int64_t experts = logits.dims[logits.rank - 1], groups = attributes.groups;
  const int64_t size = experts / groups;
  if (experts % groups != 0) {
    return Errorf(api, "mojo.TopKRouter: logits have shape %s; groups (%lld) must divide the %lld experts",
                  ShapeText(logits).text, static_cast<long long>(groups), static_cast<long long>(experts));
  }
  if (groups > 1 && attributes.top2_sum && size < 2) {
    return Errorf(api,
                  "mojo.TopKRouter: logits have shape %s; with group_score \"top2_sum\" each of the %lld "
                  "groups must have 2 experts or more",
                  ShapeText(logits).text, static_cast<long long>(groups));
  }
  // group_top_k is at most groups, so the product is at most experts.
  const int64_t choices = attributes.group_top_k * size;
  if (attributes.top_k > choices) {
    return Errorf(api,
                  "mojo.TopKRouter: logits have shape %s; top_k (%lld) must be at most the %lld experts "
                  "to choose from",
                  ShapeText(logits).text, static_cast<long long>(attributes.top_k), static_cast<long long>(choices));
  }
  if (bias != nullptr && (bias->rank != 1 || bias->dims[0] != experts)) {
    return Errorf(api, "mojo.TopKRouter: correction_bias has shape %s; with logits %s it must be [%lld]",
                  ShapeText(*bias).text, ShapeText(logits).text, static_cast<long long>(experts));
  }
  out->experts = static_cast<size_t>(experts);
  out->rows = 1;
  for (size_t i = 0; i + 1 < logits.rank; ++i) out->rows *= static_cast<size_t>(logits.dims[i]);
  return nullptr;
}

}  // namespace

OrtStatus* ReadRouter(const Api& api, OrtKernelContext* context, const TopKRouterAttributes& attributes,
                      RouterTensors* out) {
  Shape logits, bias, chosen;
  if (OrtStatus* s = ReadInput(api, context, kTopKRouter, 0, &out->logits, &logits)) return s;
  if (OrtStatus* s = ReadOptionalInput(api, context, kTopKRouter, 1, &out->bias, &bias)) return s;
  if (OrtStatus* s = CheckRouter(api, attributes, logits, out->bias != nullptr ? &bias : nullptr, out)) return s;
  for (size_t i = 0; i < logits.rank; ++i) chosen.own[i] = logits.dims[i];
  chosen.own[logits.rank - 1] = attributes.top_k;
  chosen.dims = chosen.own;
  chosen.rank = logits.rank;
  void *weights, *ids;
  if (OrtStatus* s = MakeOutput(api, context, kTopKRouter, 0, chosen, &weights)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kTopKRouter, 1, chosen, &ids)) return s;
  out->weights = static_cast<float*>(weights);
  out->ids = static_cast<int64_t*>(ids);
  return nullptr;
}

}  // namespace mojo
