// Attention on the CPU.
#include "common/attention.h"

#include "cpu/attention_run.h"
#include "cpu/backends.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// AttentionKernel is the state of one node. Immutable after Create.
struct AttentionKernel {
  AttentionAttributes attributes;
  ElementType type;
  OrtMemoryInfo* cpu_memory;
};

OrtStatus* Create(const KernelInit& init, void** state) {
  AttentionAttributes attributes{};
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  return MakeScratchKernel(init, AttentionKernel{attributes, ToElementType(init.types.inputs[kAttentionQ]), nullptr},
                           state);
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const AttentionKernel*>(state);
  AttentionTensors tensors;
  if (OrtStatus* s = ReadAttention(api, context, kernel.attributes, &tensors)) return s;
  return RunAttention(api, context, kernel.cpu_memory, kernel.attributes, {kernel.type, kernel.type}, &tensors);
}

}  // namespace

const Backend kCPUAttention = {nullptr, Create, Compute, DestroyScratchKernel<AttentionKernel>, nullptr};

}  // namespace mojo
