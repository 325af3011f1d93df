// Attention on the CPU.
#include "common/attention.h"

#include <new>

#include "cpu/attention_run.h"
#include "cpu/backends.h"

namespace mojo {
namespace {

// AttentionKernel is the state of one node. Immutable after Create.
struct AttentionKernel {
  AttentionAttributes attributes;
  ElementType type;
  OrtMemoryInfo* cpu_memory;
};

void Destroy(void* state) {
  auto* kernel = static_cast<AttentionKernel*>(state);
  if (kernel == nullptr) return;
  if (kernel->cpu_memory != nullptr) TheApi().ort->ReleaseMemoryInfo(kernel->cpu_memory);
  delete kernel;
}

OrtStatus* Create(const KernelInit& init, void** state) {
  AttentionAttributes attributes{};
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  auto* kernel = new (std::nothrow) AttentionKernel{attributes, ToElementType(init.types.inputs[kAttentionQ]), nullptr};
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
  const auto& kernel = *static_cast<const AttentionKernel*>(state);
  AttentionTensors tensors;
  if (OrtStatus* s = ReadAttention(api, context, kernel.attributes, &tensors)) return s;
  return RunAttention(api, context, kernel.cpu_memory, kernel.attributes, {kernel.type, kernel.type}, &tensors);
}

}  // namespace

const Backend kCPUAttention = {nullptr, Create, Compute, Destroy, nullptr};

}  // namespace mojo
