#include "common/device_memory.h"

namespace mojo {

DeviceMemory::~DeviceMemory() {
  if (allocator_ != nullptr) TheApi().ort->ReleaseAllocator(allocator_);
}

OrtStatus* DeviceMemory::Find(const KernelInit& init) {
  const Api& api = init.api;
  if (!api.has_scratch_buffer()) {
    return Errorf(api,
                  "mojo.%s: its device kernel needs onnxruntime 1.18 or newer, for scratch memory; this one has API "
                  "version %u",
                  init.def.name, static_cast<unsigned>(api.version));
  }
  if (OrtStatus* s = api.ort->KernelInfoGetAllocator(init.info, OrtMemTypeDefault, &allocator_)) return s;
  return api.ort->AllocatorGetInfo(allocator_, &info_);
}

Scratch::~Scratch() {
  if (data_ == nullptr) return;
  const OrtApi& ort = *TheApi().ort;
  if (OrtStatus* s = ort.AllocatorFree(memory_.allocator_, data_)) ort.ReleaseStatus(s);
}

OrtStatus* Scratch::Take(const Api& api, OrtKernelContext* context, const OpDef& def, size_t bytes, void** data) {
  *data = nullptr;
  if (bytes == 0) return nullptr;
  // AllocatorAlloc ignores streams: its memory could go to another stream too early.
  OrtStatus* cause = api.ort->KernelContext_GetScratchBuffer(context, memory_.info_, bytes, &data_);
  if (cause == nullptr && data_ != nullptr) {
    *data = data_;
    return nullptr;
  }
  OrtStatus* status = Errorf(api, "mojo.%s: no %zu bytes of scratch memory on the device: %.400s", def.name, bytes,
                             cause == nullptr ? "out of memory" : api.ort->GetErrorMessage(cause));
  if (cause != nullptr) api.ort->ReleaseStatus(cause);
  return status;
}

}  // namespace mojo
