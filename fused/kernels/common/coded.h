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
  const char *code, *zero, *block;
  const char* n;  // null: the op says otherwise what it is
  const char* k;
  size_t inputs[5];  // as in CodedTensors
};

// PlaceFrom is that of an op whose inputs follow on the one of a number, codes.
constexpr CodedPlace PlaceFrom(size_t first) {
  return {"code", "zero", "block", "n", "k", {first, first + 1, first + 2, first + 3, first + 4}};
}

OrtStatus* ReadCodedAttributes(const KernelInit& init, const CodedPlace& place, CodedAttributes* out);
inline OrtStatus* ReadCodedAttributes(const KernelInit& init, size_t first, CodedAttributes* out) {
  return ReadCodedAttributes(init, PlaceFrom(first), out);
}

// CheckActivations errs unless activations are rounded to what goes with a code.
OrtStatus* CheckActivations(AttributeReader* read, Activations activations, Code code);

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
