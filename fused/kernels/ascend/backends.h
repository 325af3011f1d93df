// The backends of the ops for onnxruntime's CANN provider, and their shared parts.
#pragma once

#include "ascend/contract.h"
#include "ascend/run.h"
#include "common/attributes.h"
#include "common/kernel.h"
#include "rotary/common/rotary_embedding.h"

namespace mojo {

#define MOJO_DECLARE(op) extern const Backend kCANN##op;
MOJO_NPU_OPS(MOJO_DECLARE)
#undef MOJO_DECLARE

// kCANNProvider is onnxruntime's name for the provider whose nodes these backends run.
constexpr char kCANNProvider[] = "CANNExecutionProvider";

// Node is the state common to all nodes: attributes, types and memory.
template <class Attributes>
struct Node {
  Attributes attributes{};
  const TypeCombo* types = nullptr;
  DeviceMemory memory;

  // InitNode reads the attributes and finds the CANN functions that every kernel needs. Each Init calls it first, then
  // adds the checks and operators of its op.
  OrtStatus* InitNode(const KernelInit& init) {
    types = &init.types;
    if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
    if (OrtStatus* s = FindBase(init)) return s;
    return memory.Find(init);
  }

  aclDataType input(size_t i) const { return ToAclType(types->inputs[i]); }
  aclDataType output(size_t i) const { return ToAclType(types->outputs[i]); }
};

// Norm normalizes the rows of x, [rows, width], into y, which has x's type. The reciprocal root that CANN also returns
// goes into scratch memory. gamma has x's type or float32.
void Norm(Run* run, const View& x, const View& gamma, float epsilon, const View& y);

// NormAs is Norm for the types that the op allows: y has x's type, or gamma's if x is float32.
void NormAs(Run* run, const View& x, const View& gamma, float epsilon, const View& y);

// FindNorm finds the operators of NormAs.
OrtStatus* FindNorm(const KernelInit& init);

// Gate writes activation(gate) * (up + up_offset), clamped as the attributes say, to y. If up has no data, y is
// activation(gate).
void Gate(Run* run, const GLUAttributes& attributes, const View& gate, const View& up, const View& y);

// FindGate finds the operators of Gate.
OrtStatus* FindGate(const KernelInit& init, const GLUAttributes& attributes);

// Rotate writes the rotation of x, in the given layout, to y.
void Rotate(Run* run, const RotaryLayout& layout, const RotaryEmbeddingAttributes& attributes, aclDataType type,
            const void* x, const void* cos, const void* sin, void* y);

// FindRotary finds the operators of Rotate.
OrtStatus* FindRotary(const KernelInit& init);

// CheckLayout refuses tables that broadcast to X in too many ways for a CANN tensor.
OrtStatus* CheckLayout(const Api& api, const OpDef& def, const RotaryLayout& layout);

}  // namespace mojo
