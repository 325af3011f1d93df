#include "common/qmoe.h"

namespace mojo {
namespace {

constexpr QuantizedPlace kGateUp = {
    "gate_up_code",
    "hidden",
    {kQMoEGateUpCodes, kQMoEGateUpScale, kQMoEGateUpMinus, kQMoEGateUpSuperScale, kQMoEGateUpSuperMinus}};
constexpr QuantizedPlace kDown = {
    "down_code", "inner", {kQMoEDownCodes, kQMoEDownScale, kQMoEDownMinus, kQMoEDownSuperScale, kQMoEDownSuperMinus}};

// ReadBias reads a bias of width numbers for each expert.
OrtStatus* ReadBias(const Api& api, OrtKernelContext* context, size_t input, size_t experts, size_t width,
                    const float** out) {
  Shape shape;
  const void* data;
  if (OrtStatus* s = ReadOptionalInput(api, context, kQMoE, input, &data, &shape)) return s;
  *out = static_cast<const float*>(data);
  const int64_t want[] = {static_cast<int64_t>(experts), static_cast<int64_t>(width)};
  if (data == nullptr || (shape.rank == 2 && shape.dims[0] == want[0] && shape.dims[1] == want[1])) return nullptr;
  return Errorf(api, "mojo.QMoE: %s has shape %s; it must be %s, a number for each output of each expert",
                kQMoE.input_names[input], ShapeText(shape).text, ShapeText(want, 2).text);
}

}  // namespace

// The rows of each matrix are the columns of the other one.
OrtStatus* ReadAttributes(const KernelInit& init, QMoEForm* out) {
  QMoEAttributes& a = *out;
  if (OrtStatus* s = ReadAttributes(init, &a)) return s;
  const int64_t packed = a.packing == Packing::kNone ? a.inner : 2 * a.inner;
  const EmbeddingAttributes gate_up{a.gate_up_code, a.gate_up_zero, a.gate_up_block, packed, a.hidden};
  const EmbeddingAttributes down{a.down_code, a.down_zero, a.down_block, a.hidden, a.inner};
  if (OrtStatus* s = FindQuantized(init, kGateUp, gate_up, &out->gate_up)) return s;
  return FindQuantized(init, kDown, down, &out->down);
}

OrtStatus* ReadQMoE(const Api& api, OrtKernelContext* context, const QMoEForm& attributes, QMoEInputs* in, Shape* x,
                    MoEShape* out) {
  Shape weights, ids;
  const void* data;
  if (OrtStatus* s = ReadInput(api, context, kQMoE, kQMoEX, &in->x, x)) return s;
  if (OrtStatus* s = ReadInput(api, context, kQMoE, kQMoEWeights, &in->weights, &weights)) return s;
  if (OrtStatus* s = ReadInput(api, context, kQMoE, kQMoEIds, &data, &ids)) return s;
  in->ids = static_cast<const int64_t*>(data);
  if (OrtStatus* s = CheckChoices(api, kQMoE, *x, weights, ids, out)) return s;
  const size_t hidden = attributes.gate_up.k;
  if (out->hidden != hidden) {
    return Errorf(api, "mojo.QMoE: X has shape %s; its last dimension must be %zu, which is hidden", ShapeText(*x).text,
                  hidden);
  }
  size_t experts = 0;
  if (OrtStatus* s = ReadQuantized(api, context, kQMoE, kGateUp, attributes.gate_up, &out->experts, &in->gate_up))
    return s;
  if (OrtStatus* s = ReadQuantized(api, context, kQMoE, kDown, attributes.down, &experts, &in->down)) return s;
  if (experts != out->experts) {
    return Errorf(api, "mojo.QMoE: gate_up_codes has %zu experts, down_codes %zu; they must be as many", out->experts,
                  experts);
  }
  if (OrtStatus* s = ReadBias(api, context, kQMoEGateUpBias, experts, attributes.gate_up.n, &in->gate_up_bias)) {
    return s;
  }
  if (OrtStatus* s = ReadBias(api, context, kQMoEDownBias, experts, hidden, &in->down_bias)) return s;
  out->inner = attributes.down.k;
  out->packed = attributes.gate_up.n;
  return nullptr;
}

}  // namespace mojo
