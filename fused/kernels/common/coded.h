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

// CodedPlace says which attributes and inputs of an op hold weights.
struct CodedPlace {
  const char *code, *k;
  size_t inputs[5];  // as in CodedTensors
};

// PlaceFrom is that of an op whose inputs follow on the one of a number, codes.
constexpr CodedPlace PlaceFrom(size_t first) {
  return {"code", "k", {first, first + 1, first + 2, first + 3, first + 4}};
}

// FindCoded completes attributes of weights by the type of their scales, which must go with them.
OrtStatus* FindCoded(const KernelInit& init, const CodedPlace& place, const EmbeddingAttributes& attributes,
                     CodedAttributes* out);

// ReadAttributes reads the attributes of Embedding.
OrtStatus* ReadAttributes(const KernelInit& init, CodedAttributes* out);

// CodedTensors are the weights; those that are left out are null.
struct CodedTensors {
  const void *codes, *scale, *minus, *super_scale, *super_minus;
};

// ReadCoded reads the inputs, and checks which are given and their shapes. With experts, there is a dimension before
// the others: so many matrices.
OrtStatus* ReadCoded(const Api& api, OrtKernelContext* context, const OpDef& def, const CodedPlace& place,
                     const CodedAttributes& attributes, size_t* experts, CodedTensors* out);
inline OrtStatus* ReadCoded(const Api& api, OrtKernelContext* context, const OpDef& def, size_t first,
                            const CodedAttributes& attributes, CodedTensors* out) {
  return ReadCoded(api, context, def, PlaceFrom(first), attributes, nullptr, out);
}

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_CODED_H_
