// Attributes and weights of Linear, Embedding and QMoE.
#pragma once

#include "common/attributes.h"
#include "common/schema.h"

namespace mojo {

// QuantizedAttributes describe the encoding of weights.
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

// PlaceFrom is the place of quantized inputs that begin at input first, with the codes.
constexpr QuantizedPlace PlaceFrom(size_t first) {
  return {"code", "k", {first, first + 1, first + 2, first + 3, first + 4}};
}

// FindQuantized completes attributes of weights by the type of their scales, which must go with them.
OrtStatus* FindQuantized(const KernelInit& init, const QuantizedPlace& place, const EmbeddingAttributes& attributes,
                         QuantizedAttributes* out);

// LinearForm and EmbeddingForm are the attributes of a node, and its matrix as they describe it.
struct LinearForm : LinearAttributes {
  QuantizedAttributes matrix;
};
struct EmbeddingForm : EmbeddingAttributes {
  QuantizedAttributes matrix;
};

OrtStatus* ReadAttributes(const KernelInit& init, LinearForm* out);
OrtStatus* ReadAttributes(const KernelInit& init, EmbeddingForm* out);

// QuantizedTensors are the weights; omitted ones are null.
struct QuantizedTensors {
  const void *codes, *scale, *minus, *super_scale, *super_minus;
};

// GetQuantized returns the weights of a running node, and checks which are given.
OrtStatus* GetQuantized(const CallBase& call, const QuantizedPlace& place, const QuantizedAttributes& attributes,
                        QuantizedTensors* out);

}  // namespace mojo
