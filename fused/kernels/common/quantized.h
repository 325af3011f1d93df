// Attributes, inputs and shape rules of the weights of Linear and Embedding.
#ifndef MOJO_KERNELS_COMMON_QUANTIZED_H_
#define MOJO_KERNELS_COMMON_QUANTIZED_H_

#include "common/attributes.h"
#include "common/schema.h"

namespace mojo {

// QuantizedAttributes say how weights are to be read.
struct QuantizedAttributes {
  Code code;
  size_t zero, block, n, k;
  ONNXTensorElementDataType scale;  // their type
};

// QuantizedPlace says which attributes and inputs of an op hold weights.
struct QuantizedPlace {
  const char *code, *k;
  size_t inputs[5];  // as in QuantizedTensors
};

// PlaceFrom is that of an op whose inputs follow on the one of a number, codes.
constexpr QuantizedPlace PlaceFrom(size_t first) {
  return {"code", "k", {first, first + 1, first + 2, first + 3, first + 4}};
}

// FindQuantized completes attributes of weights by the type of their scales, which must go with them.
OrtStatus* FindQuantized(const KernelInit& init, const QuantizedPlace& place, const EmbeddingAttributes& attributes,
                         QuantizedAttributes* out);

// ReadAttributes reads the attributes of Embedding.
OrtStatus* ReadAttributes(const KernelInit& init, QuantizedAttributes* out);

// QuantizedTensors are the weights; those that are left out are null.
struct QuantizedTensors {
  const void *codes, *scale, *minus, *super_scale, *super_minus;
};

// ReadQuantized reads the inputs, and checks which are given and their shapes. With experts, there is a dimension
// before the others: so many matrices.
OrtStatus* ReadQuantized(const Api& api, OrtKernelContext* context, const OpDef& def, const QuantizedPlace& place,
                         const QuantizedAttributes& attributes, size_t* experts, QuantizedTensors* out);
inline OrtStatus* ReadQuantized(const Api& api, OrtKernelContext* context, const OpDef& def, size_t first,
                                const QuantizedAttributes& attributes, QuantizedTensors* out) {
  return ReadQuantized(api, context, def, PlaceFrom(first), attributes, nullptr, out);
}

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_QUANTIZED_H_
