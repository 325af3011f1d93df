// Scratch memory of the device that a node runs on, from onnxruntime's arena.
#pragma once

#include "common/op.h"

namespace mojo {

// DeviceMemory is the allocator of the device that a node runs on. The node's state holds it.
class DeviceMemory {
 public:
  DeviceMemory() {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  // Find asks onnxruntime for the allocator of the node's provider, so the device is the session's, whatever its
  // number.
  OrtStatus* Find(const KernelInit& init);

 private:
  friend class Scratch;
  OrtAllocator* allocator_ = nullptr;
  const OrtMemoryInfo* info_ = nullptr;  // the allocator's own
};

// Scratch is device memory for the launches of one run. Its destructor returns the memory after the launches are queued
// and before they have run. That is safe: onnxruntime's arena remembers the stream of an allocation. It reuses the
// memory only for later work of that stream, or of a stream that it makes wait for this one. The arenas of the CUDA and
// the CANN provider both do so.
class Scratch {
 public:
  explicit Scratch(const DeviceMemory& memory) : memory_(memory) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();

  // Take returns bytes of memory, null for 0 bytes. It may be called once.
  OrtStatus* Take(const Api& api, OrtKernelContext* context, const OpDef& def, size_t bytes, void** data);

 private:
  const DeviceMemory& memory_;
  void* data_ = nullptr;
};

}  // namespace mojo
