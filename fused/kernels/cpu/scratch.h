// Scratch memory of a kernel on the CPU; common/device_memory.h has the same for devices.
#pragma once

#include "common/kernel.h"
#include "common/room.h"

namespace mojo {

// HostRoom divides scratch memory of the CPU: each part begins a cache line.
using HostRoom = Room<64>;

// HostMemory names the session's memory on the CPU.
class HostMemory {
 public:
  HostMemory() {}
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  OrtStatus* Find(const KernelInit& init);

 private:
  friend class HostScratch;
  OrtMemoryInfo* info_ = nullptr;
};

// ScratchNode is the state of a node whose runs take scratch memory.
template <class Attributes>
struct ScratchNode : NodeState<Attributes> {
  HostMemory memory;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState<Attributes>::Init(init)) return s;
    return memory.Find(init);
  }
};

// HostScratch is memory of the session's allocator; its destructor returns it.
class HostScratch {
 public:
  HostScratch() {}
  HostScratch(const HostScratch&) = delete;
  ~HostScratch();

  // Take allocates bytes, aligned as the allocator's memory is.
  OrtStatus* Take(const Api& api, OrtKernelContext* context, const HostMemory& from, size_t bytes);

  // Divide takes the memory that plan(HostRoom*) divides up. It calls plan twice: to count, and to divide. It takes no
  // memory if plan needs no bytes.
  template <class Plan>
  OrtStatus* Divide(const Api& api, OrtKernelContext* context, const HostMemory& from, const Plan& plan) {
    HostRoom count;
    plan(&count);
    if (count.used == 0) return nullptr;
    if (OrtStatus* s = Take(api, context, from, count.used)) return s;
    HostRoom room{memory()};
    plan(&room);
    return nullptr;
  }

  char* memory() const { return static_cast<char*>(memory_); }

 private:
  OrtAllocator* allocator_ = nullptr;
  void* memory_ = nullptr;
};

}  // namespace mojo
