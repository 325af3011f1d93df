// Scratch memory of a kernel on the CPU; that of a device is in common/device_memory.h.
#ifndef MOJO_KERNELS_CPU_SCRATCH_H_
#define MOJO_KERNELS_CPU_SCRATCH_H_

#include <new>

#include "common/op.h"
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

  // Divide takes the memory that plan(HostRoom*) divides up, which it calls twice: to count, and to divide. No memory
  // is taken where plan needs none.
  template <class Plan>
  OrtStatus* Divide(const Api& api, OrtKernelContext* context, const OrtMemoryInfo* cpu_memory, const Plan& plan) {
    HostRoom count;
    plan(&count);
    if (count.used == 0) return nullptr;
    if (OrtStatus* s = Take(api, context, cpu_memory, count.used)) return s;
    HostRoom room{memory()};
    plan(&room);
    return nullptr;
  }

  char* memory() const { return static_cast<char*>(memory_); }

 private:
  OrtAllocator* allocator_ = nullptr;
  void* memory_ = nullptr;
};

// MakeScratchKernel makes the state of a node whose runs take scratch memory: a copy of kernel, whose cpu_memory it
// sets. It is a Backend's create, and DestroyScratchKernel its destroy.
template <class Kernel>
OrtStatus* MakeScratchKernel(const KernelInit& init, const Kernel& kernel, void** state) {
  auto* made = new (std::nothrow) Kernel(kernel);
  if (made == nullptr) return OutOfMemory(init.api);
  if (OrtStatus* s = init.api.ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &made->cpu_memory)) {
    delete made;
    return s;
  }
  *state = made;
  return nullptr;
}
template <class Kernel>
void DestroyScratchKernel(void* state) {
  auto* kernel = static_cast<Kernel*>(state);
  if (kernel == nullptr) return;
  TheApi().ort->ReleaseMemoryInfo(kernel->cpu_memory);
  delete kernel;
}

}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SCRATCH_H_
