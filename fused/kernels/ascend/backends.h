// The backends of the ops for onnxruntime's CANN provider, and their shared parts.
#pragma once

#include "ascend/contract.h"
#include "ascend/run.h"
#include "common/kernel.h"

namespace mojo {

#define MOJO_DECLARE(op) extern const Backend kCANN##op;
MOJO_NPU_OPS(MOJO_DECLARE)
#undef MOJO_DECLARE

// kCANNProvider is onnxruntime's name for the provider whose nodes these backends run.
constexpr char kCANNProvider[] = "CANNExecutionProvider";

// Node is the state common to all nodes. Init also finds the CANN functions that every kernel needs; the Init of an op
// calls it first, then adds the checks and operators of its op.
template <class Attributes>
struct Node : NodeState<Attributes> {
  DeviceMemory memory;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState<Attributes>::Init(init)) return s;
    if (OrtStatus* s = FindBase(init)) return s;
    return memory.Find(init);
  }

  aclDataType input(size_t i) const { return ToAclType(this->types->inputs[i]); }
  aclDataType output(size_t i) const { return ToAclType(this->types->outputs[i]); }
};

// Norm normalizes the rows of x, [rows, width], into y, which has x's type, or gamma's if x is float32. gamma has x's
// type or float32.
void Norm(Run* run, const View& x, const View& gamma, float epsilon, const View& y);

// FindNorm finds the operators of Norm.
OrtStatus* FindNorm(const KernelInit& init);

// Gate writes activation(gate) * (up + up_offset), clamped as the attributes say, to y. If up has no data, y is
// activation(gate).
void Gate(Run* run, const GLUAttributes& attributes, const View& gate, const View& up, const View& y);

// FindGate finds the operators of Gate.
OrtStatus* FindGate(const KernelInit& init, const GLUAttributes& attributes);

}  // namespace mojo
