#include "cpu/scratch.h"

namespace mojo {

HostScratch::~HostScratch() {
  const Api& api = TheApi();
  if (memory_ != nullptr) {
    if (OrtStatus* status = api.ort->AllocatorFree(allocator_, memory_)) api.ort->ReleaseStatus(status);
  }
  if (allocator_ != nullptr) api.ort->ReleaseAllocator(allocator_);
}

OrtStatus* HostScratch::Take(const Api& api, OrtKernelContext* context, const OrtMemoryInfo* cpu_memory, size_t bytes) {
  if (OrtStatus* s = api.ort->KernelContext_GetAllocator(context, cpu_memory, &allocator_)) return s;
  if (OrtStatus* s = api.ort->AllocatorAlloc(allocator_, bytes, &memory_)) return s;
  return memory_ == nullptr ? OutOfMemory(api) : nullptr;
}

}  // namespace mojo
