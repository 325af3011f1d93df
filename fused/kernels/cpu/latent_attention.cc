// LatentAttention on the CPU.
#include "common/latent_attention.h"

#include <new>

#include "cpu/backends.h"
#include "cpu/latent_attention_run.h"

namespace mojo {
namespace {

// LatentKernel is the state of one node. Immutable after Create.
struct LatentKernel {
  LatentAttributes attributes;
  ElementType type;
  OrtMemoryInfo* cpu_memory;
};

void Destroy(void* state) {
  auto* kernel = static_cast<LatentKernel*>(state);
  if (kernel == nullptr) return;
  if (kernel->cpu_memory != nullptr) TheApi().ort->ReleaseMemoryInfo(kernel->cpu_memory);
  delete kernel;
}

OrtStatus* Create(const KernelInit& init, void** state) {
  LatentAttributes attributes{};
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  auto* kernel =
      new (std::nothrow) LatentKernel{attributes, ToElementType(init.types.inputs[kLatentAttentionQ]), nullptr};
  if (kernel == nullptr) return OutOfMemory(init.api);
  if (OrtStatus* s = init.api.ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &kernel->cpu_memory)) {
    Destroy(kernel);
    return s;
  }
  *state = kernel;
  return nullptr;
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const LatentKernel*>(state);
  LatentTensors tensors;
  if (OrtStatus* s = ReadLatentAttention(api, context, kernel.attributes, &tensors)) return s;
  return RunLatentAttention(api, context, kernel.cpu_memory, kernel.attributes, kernel.type, tensors);
}

}  // namespace

const Backend kCPULatentAttention = {nullptr, Create, Compute, Destroy, nullptr};

}  // namespace mojo
