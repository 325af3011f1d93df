// Attributes, sizes and weights of QMoE.
#pragma once

#include "linear/common/quantized.h"
#include "moe/common/moe.h"

namespace mojo {

// QMoEForm is the attributes of QMoE, and its matrices as they describe them.
struct QMoEForm : QMoEAttributes {
  QuantizedAttributes gate_up, down;
};

OrtStatus* ReadAttributes(const KernelInit& init, QMoEForm* out);

// QMoETensors are the sizes and the matrices of a running node: of all experts, one after the other.
struct QMoETensors {
  MoEShape shape;
  QuantizedTensors gate_up, down;
};

// ReadQMoE returns them for a node whose inputs call has read.
OrtStatus* ReadQMoE(const QMoECall& call, const QMoEForm& attributes, QMoETensors* out);

}  // namespace mojo
