// Attention on the CPU.
#include "attention/common/attention.h"

#include "attention/cpu/attention_run.h"
#include "cpu/backends.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// AttentionKernel is the state of one node.
struct AttentionKernel {
  AttentionAttributes attributes{};
  ElementType type = kFloat32;
  HostMemory memory;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* AttentionKernel::Init(const KernelInit& init) {
  type = ToElementType(init.types.inputs[kAttentionQ]);
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  return memory.Find(init);
}

OrtStatus* AttentionKernel::Compute(const Api& api, OrtKernelContext* context) const {
  AttentionTensors tensors;
  AttentionCall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = ReadAttention(&call, &tensors)) return s;
  return RunAttention(api, context, memory, attributes, {type, type}, &tensors);
}

}  // namespace

const Backend kCPUAttention = MakeBackend<AttentionKernel>(nullptr);

}  // namespace mojo
