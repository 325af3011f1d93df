// Scratch memory of a kernel on the CPU; that of a device is in common/device_memory.h.
#ifndef MOJO_KERNELS_CPU_SCRATCH_H_
#define MOJO_KERNELS_CPU_SCRATCH_H_

#include "common/ort.h"
#include "common/room.h"

namespace mojo {

// HostRoom divides scratch memory of the CPU up: each part begins a cache line.
using HostRoom = Room<64>;

// HostScratch is memory of the session's allocator, which goes back to it with the object.
class HostScratch {
 public:
  HostScratch() {}
  HostScratch(const HostScratch&) = delete;
  ~HostScratch();

  // Take allocates bytes, aligned as the allocator's memory is.
  OrtStatus* Take(const Api& api, OrtKernelContext* context, const OrtMemoryInfo* cpu_memory, size_t bytes);
  char* memory() const { return static_cast<char*>(memory_); }

 private:
  OrtAllocator* allocator_ = nullptr;
  void* memory_ = nullptr;
};

}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SCRATCH_H_
