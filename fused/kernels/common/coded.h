// Attributes, inputs and shape rules of the weights of Linear and Embedding.
#ifndef MOJO_KERNELS_COMMON_CODED_H_
#define MOJO_KERNELS_COMMON_CODED_H_

#include "common/attributes.h"
#include "common/schema.h"

namespace mojo {

// CodedAttributes say how weights are to be read.
struct CodedAttributes {
  Code code;
  size_t zero, block, n, k;
  ONNXTensorElementDataType scale;  // their type
};

// ReadCodedAttributes reads them; first is the number of the input codes.
OrtStatus* ReadCodedAttributes(const KernelInit& init, size_t first, CodedAttributes* out);

// CodedTensors are the weights; those that are left out are null.
struct CodedTensors {
  const void *codes, *scale, *minus, *super_scale, *super_minus;
};

// ReadCoded reads the inputs from number first on, and checks which are given and their shapes.
OrtStatus* ReadCoded(const Api& api, OrtKernelContext* context, const OpDef& def, size_t first,
                     const CodedAttributes& attributes, CodedTensors* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_CODED_H_
