// Types, attributes and shape rules of TopKRouter.
#include "common/topk_router.h"

#include <math.h>

namespace mojo {
namespace {

// CheckRouter checks the shapes, and sets the sizes; bias is null where it is left out.
OrtStatus* CheckRouter(const Api& api, const RouterAttributes& attributes, const Shape& logits, const Shape* bias,
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

OrtStatus* ReadAttributes(const KernelInit& init, RouterAttributes* out) {
  AttributeReader read(init);
  out->top_k = read.Int("top_k");
  out->score = read.Choice<Score>("score");
  out->top_k_first = read.Choice<Order>("order") == Order::kTopKFirst;
  out->groups = read.Int("groups");
  out->group_top_k = read.Int("group_top_k");
  out->top2_sum = read.Choice<GroupScore>("group_score") == GroupScore::kTop2Sum;
  out->excluded_score = read.Float("excluded_score");
  out->renormalize = read.Flag("renormalize");
  out->epsilon = read.Float("epsilon");
  out->scale = read.Float("scale");
  if (out->top_k < 1) read.FailInt("top_k", out->top_k, "at least 1");
  if (out->groups < 1) read.FailInt("groups", out->groups, "at least 1 (1 for no groups)");
  if (out->groups > 1 && out->top_k_first) {
    read.FailInt("groups", out->groups, "1 with order \"top_k_first\"");
  }
  if (out->group_top_k < 1 || out->group_top_k > out->groups) {
    read.FailInt("group_top_k", out->group_top_k, "from 1 to groups");
  }
  if (out->excluded_score != 0 && out->excluded_score != -INFINITY) {
    read.FailFloat("excluded_score", out->excluded_score, "0 or minus infinity");
  }
  if (!(out->epsilon >= 0) || isinf(out->epsilon)) {
    read.FailFloat("epsilon", out->epsilon, "a finite number of at least 0");
  }
  if (!isfinite(out->scale)) read.FailFloat("scale", out->scale, "a finite number");
  return read.status;
}

OrtStatus* ReadRouter(const Api& api, OrtKernelContext* context, const RouterAttributes& attributes,
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
