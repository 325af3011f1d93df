#include "cpu/scratch.h"

namespace mojo {

HostMemory::~HostMemory() {
  if (info_ != nullptr) TheApi().ort->ReleaseMemoryInfo(info_);
}

OrtStatus* HostMemory::Find(const KernelInit& init) {
  return init.api.ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &info_);
}

HostScratch::~HostScratch() {
  const Api& api = TheApi();
  if (memory_ != nullptr) {
    if (OrtStatus* status = api.ort->AllocatorFree(allocator_, memory_)) api.ort->ReleaseStatus(status);
  }
  if (allocator_ != nullptr) api.ort->ReleaseAllocator(allocator_);
}

OrtStatus* HostScratch::Take(const Api& api, OrtKernelContext* context, const HostMemory& from, size_t bytes) {
  if (OrtStatus* s = api.ort->KernelContext_GetAllocator(context, from.info_, &allocator_)) return s;
  if (OrtStatus* s = api.ort->AllocatorAlloc(allocator_, bytes, &memory_)) return s;
  return memory_ == nullptr ? OutOfMemory(api) : nullptr;
}

}  // namespace mojo
