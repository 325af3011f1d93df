// The backends of the ops for onnxruntime's CANN provider, and what they share.
#ifndef MOJO_KERNELS_ASCEND_BACKENDS_H_
#define MOJO_KERNELS_ASCEND_BACKENDS_H_

#include "ascend/contract.h"
#include "ascend/run.h"
#include "common/attributes.h"
#include "common/kernel.h"
#include "common/rotary_embedding.h"

namespace mojo {

#define MOJO_DECLARE(op) extern const Backend kCANN##op;
MOJO_NPU_OPS(MOJO_DECLARE)
#undef MOJO_DECLARE

// kCANNProvider is onnxruntime's name for the provider whose nodes these backends run.
constexpr char kCANNProvider[] = "CANNExecutionProvider";

// Node is what the states of all nodes have: attributes, types and memory.
template <class Attributes>
struct Node {
  Attributes attributes{};
  const TypeCombo* types = nullptr;
  DeviceMemory memory;

  // InitNode reads the attributes, and finds what of CANN every kernel needs. An Init begins with it, and goes on with
  // the checks and operators of its op.
  OrtStatus* InitNode(const KernelInit& init) {
    types = &init.types;
    if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
    if (OrtStatus* s = FindBase(init)) return s;
    return memory.Find(init);
  }

  aclDataType input(size_t i) const { return ToAclType(types->inputs[i]); }
  aclDataType output(size_t i) const { return ToAclType(types->outputs[i]); }
};

// Norm has the rows of x, [rows, width], normalised into y, which is of x's type; the sum of the row's squares as
// CANN has it goes into memory of its own. gamma is of x's type or float32.
void Norm(Run* run, const View& x, const View& gamma, float epsilon, const View& y);

// NormAs is Norm for the types that the op allows: y is of x's type, or of gamma's where x is float32.
void NormAs(Run* run, const View& x, const View& gamma, float epsilon, const View& y);

// FindNorm finds the operators of NormAs.
OrtStatus* FindNorm(const KernelInit& init);

// Gate writes activation(gate) * (up + up_offset), clamped as the attributes say, to y. Where up has no data there is
// none, and y is activation(gate).
void Gate(Run* run, const GLUAttributes& attributes, const View& gate, const View& up, const View& y);

// FindGate finds the operators of Gate.
OrtStatus* FindGate(const KernelInit& init, const GLUAttributes& attributes);

// Rotate writes the rotation of x, which lies as the layout says, to y.
void Rotate(Run* run, const RotaryLayout& layout, const RotaryEmbeddingAttributes& attributes, aclDataType type,
            const void* x, const void* cos, const void* sin, void* y);

// FindRotary finds the operators of Rotate.
OrtStatus* FindRotary(const KernelInit& init);

// CheckLayout refuses tables that are broadcast to X in too many ways for a tensor of CANN's.
OrtStatus* CheckLayout(const Api& api, const OpDef& def, const RotaryLayout& layout);

}  // namespace mojo

#endif  // MOJO_KERNELS_ASCEND_BACKENDS_H_
