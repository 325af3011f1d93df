// LatentAttention on the CPU.
#include "common/latent_attention.h"

#include "cpu/backends.h"
#include "cpu/latent_attention_run.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// LatentKernel is the state of one node. Immutable after Create.
struct LatentKernel {
  LatentAttributes attributes;
  ElementType type;
  OrtMemoryInfo* cpu_memory;
};

OrtStatus* Create(const KernelInit& init, void** state) {
  LatentAttributes attributes{};
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  return MakeScratchKernel(init, LatentKernel{attributes, ToElementType(init.types.inputs[kLatentAttentionQ]), nullptr},
                           state);
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const LatentKernel*>(state);
  LatentTensors tensors;
  if (OrtStatus* s = ReadLatentAttention(api, context, kernel.attributes, &tensors)) return s;
  return RunLatentAttention(api, context, kernel.cpu_memory, kernel.attributes, kernel.type, tensors);
}

}  // namespace

const Backend kCPULatentAttention = {nullptr, Create, Compute, DestroyScratchKernel<LatentKernel>, nullptr};

}  // namespace mojo
