// How the kernels of the collective ops see the memory that ranks share.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/mojo_cuda.h"

namespace mojo {

constexpr int kMostPeers = 8;

// PeerState is what one step leaves to the next, in the memory of the rank. A step is a launch that exchanges data.
struct PeerState {
  uint64_t step;    // 1 + the number of steps so far
  uint32_t buffer;  // of the next step, 0 to 2
  uint32_t clear;   // bytes of a peer's message that the last step left in its buffer
  uint32_t ended;   // blocks of this step that have ended
};

// PeerStatus is in memory of the host that the device can write.
struct PeerStatus {
  int late;  // 1 + the rank that a kernel has given up on, or 0
};

// PeerView is how kernels see the shared memory. Each rank's has, one behind the other: the signals of the ranks for
// each block; three buffers for messages whose data are their own signals, which are full of -0.0; and three buffers
// for other messages. A step uses one of each three. A buffer has a slot for the message of each rank.
struct PeerView {
  char* of[kMostPeers];
  PeerState* state;
  PeerStatus* status;
  uint64_t patience;  // nanoseconds that a kernel waits for a peer
  int rank, ranks;
  bool on_host;                   // the buffers are memory of the host
  int blocks;                     // of a launch, at most: those that every rank's GPU runs at once
  uint32_t once_slot, part_slot;  // bytes of a message, at most

  static constexpr size_t kMostBlocks = 128;
  static constexpr size_t kSignalBytes = kMostBlocks * kMostPeers * sizeof(uint64_t);

  // OnceAt and PartAt are where a rank's message begins in the memory of the rank that it is for.
  __host__ __device__ size_t OnceAt(uint32_t buffer, int from) const {
    return kSignalBytes + (size_t{buffer} * ranks + from) * once_slot;
  }
  __host__ __device__ size_t PartAt(uint32_t buffer, int from) const {
    return kSignalBytes + size_t{3} * ranks * once_slot + (size_t{buffer} * ranks + from) * part_slot;
  }
  size_t Bytes() const { return (PartAt(3, 0) + 4095) / 4096 * 4096; }  // whole pages
};

}  // namespace mojo
