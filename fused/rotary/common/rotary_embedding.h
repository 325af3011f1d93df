// Attributes and layout of RotaryEmbedding, and of ops that have a rotation in them.
#pragma once

#include "common/attributes.h"
#include "rotary/common/rotary_layout.h"

namespace mojo {

// ReadAttributes for a rotation of X also checks its width against the last dimension of X, if the model fixes it.
OrtStatus* ReadAttributes(const KernelInit& init, RotaryEmbeddingAttributes* out);
OrtStatus* ReadAttributes(const KernelInit& init, NormRotaryAttributes* out);

// LayOutRotary lays cos and sin out, whose shapes fit.
RotaryLayout LayOutRotary(const RotaryEmbeddingAttributes& attributes, const Shape& x, const Shape& cos,
                          const Shape& sin);

// RotaryTensors are the tensors of a running node, and their layout.
struct RotaryTensors : RotaryLayout {
  const void *x = nullptr, *cos = nullptr, *sin = nullptr;
  void* y = nullptr;
};

// ReadRotary finds the tensors of a node whose inputs call has read, and makes its output Y. X is input number 0; cos
// and sin are the inputs from number tables on. Tensors has the members of RotaryTensors.
template <class Tensors>
OrtStatus* ReadRotary(const RotaryEmbeddingAttributes& attributes, size_t tables, CallBase* call, Tensors* out) {
  const Shape* const shapes = call->shapes;
  static_cast<RotaryLayout&>(*out) = LayOutRotary(attributes, shapes[0], shapes[tables], shapes[tables + 1]);
  out->x = call->data[0];
  out->cos = call->data[tables];
  out->sin = call->data[tables + 1];
  return call->Make(0, &out->y);
}

}  // namespace mojo
