// Scratch memory of a running kernel.
#ifndef MOJO_KERNELS_CPU_SCRATCH_H_
#define MOJO_KERNELS_CPU_SCRATCH_H_

#include "common/ort.h"

namespace mojo {

// Scratch is memory of the session's allocator, which goes back to it with the object.
class Scratch {
 public:
  Scratch() {}
  Scratch(const Scratch&) = delete;
  ~Scratch();

  // Take allocates bytes, aligned as the allocator's memory is.
  OrtStatus* Take(const Api& api, OrtKernelContext* context, const OrtMemoryInfo* cpu_memory, size_t bytes);
  char* memory() const { return static_cast<char*>(memory_); }

 private:
  OrtAllocator* allocator_ = nullptr;
  void* memory_ = nullptr;
};

}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SCRATCH_H_
