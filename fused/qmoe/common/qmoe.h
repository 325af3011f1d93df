// Attributes, sizes and weights of QMoE.
#ifndef MOJO_KERNELS_COMMON_QMOE_H_
#define MOJO_KERNELS_COMMON_QMOE_H_

#include "linear/common/quantized.h"
#include "moe/common/moe.h"

namespace mojo {

// QMoEForm is the attributes of QMoE, and its matrices as they describe them.
struct QMoEForm : QMoEAttributes {
  QuantizedAttributes gate_up, down;
};

OrtStatus* ReadAttributes(const KernelInit& init, QMoEForm* out);

// ReadQMoE reads a running node, and returns its sizes and its matrices: of all experts, one after the other.
OrtStatus* ReadQMoE(const Api& api, const QMoEForm& attributes, QMoECall* call, MoEShape* shape,
                    QuantizedTensors* gate_up, QuantizedTensors* down);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_QMOE_H_
