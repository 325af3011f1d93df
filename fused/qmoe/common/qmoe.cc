#include "qmoe/common/qmoe.h"

namespace mojo {
namespace {

constexpr QuantizedPlace kGateUp = {
    "gate_up_code",
    "hidden",
    {kQMoEGateUpCodes, kQMoEGateUpScale, kQMoEGateUpMinus, kQMoEGateUpSuperScale, kQMoEGateUpSuperMinus}};
constexpr QuantizedPlace kDown = {
    "down_code", "inner", {kQMoEDownCodes, kQMoEDownScale, kQMoEDownMinus, kQMoEDownSuperScale, kQMoEDownSuperMinus}};

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

OrtStatus* ReadQMoE(const QMoECall& call, const QMoEForm& attributes, QMoETensors* out) {
  const QMoESizes& z = call.sizes;
  out->shape = {z.A, z.K, z.E, attributes.gate_up.k, attributes.down.k, attributes.gate_up.n};
  if (OrtStatus* s = GetQuantized(call, kGateUp, attributes.gate_up, &out->gate_up)) return s;
  return GetQuantized(call, kDown, attributes.down, &out->down);
}

}  // namespace mojo
