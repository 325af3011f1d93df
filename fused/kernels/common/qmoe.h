// Attributes and shape rules of QMoE.
#ifndef MOJO_KERNELS_COMMON_QMOE_H_
#define MOJO_KERNELS_COMMON_QMOE_H_

#include "common/moe.h"
#include "common/quantized.h"

namespace mojo {

// QMoEForm is the attributes of QMoE, and its matrices as they describe them.
struct QMoEForm : QMoEAttributes {
  QuantizedAttributes gate_up, down;
};

OrtStatus* ReadAttributes(const KernelInit& init, QMoEForm* out);

// QMoEInputs are the inputs of a running node; an optional one that is left out is null.
struct QMoEInputs {
  const void *x, *weights;
  const int64_t* ids;
  QuantizedTensors gate_up, down;  // of all experts, one after the other
  const float *gate_up_bias, *down_bias;
};

// ReadQMoE reads the inputs of a running node and checks their shapes against each other and the attributes. x is the
// shape of X.
OrtStatus* ReadQMoE(const Api& api, OrtKernelContext* context, const QMoEForm& attributes, QMoEInputs* in, Shape* x,
                    MoEShape* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_QMOE_H_
