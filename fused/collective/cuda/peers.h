// Memory that the GPUs of one host share, for the collective ops: one process is one rank and has one GPU.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <memory>
#include <string>

#include "cuda/mojo_cuda.h"

namespace mojo {

constexpr int kMostPeers = 8;

// GatherBytes gathers `bytes` bytes of each rank in `all`, in the order of ranks. All ranks call it, in the same order.
typedef std::function<bool(const void* mine, void* all, size_t bytes)> GatherBytes;

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

// SharedPlace is where the memory is that ranks share: of the device, which peers must reach, or of the host.
enum class SharedPlace { kDevice, kHost };

// Peers is the shared memory of one stream of a process. A rank launches its steps on one stream, and all ranks launch
// the same steps in the same order; a launch may be a node of a graph.
class Peers {
 public:
  // Make shares memory with the other ranks of the host, which call it too: of the devices, or of the host where they
  // cannot reach each other's. It returns null, on all ranks, if neither is possible; error says why. patience is the
  // seconds that a kernel waits for another rank.
  static std::unique_ptr<Peers> Make(int rank, int ranks, double patience, const GatherBytes& gather,
                                     std::string* error);
  // MakeIn is Make for one place.
  static std::unique_ptr<Peers> MakeIn(SharedPlace place, int rank, int ranks, double patience,
                                       const GatherBytes& gather, std::string* error);
  // The other ranks may still have this rank's memory open. It is freed once all of them have closed it, by a later
  // call of MakeIn or destructor, or else by the end of the process.
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  const PeerView& view() const { return view_; }
  // Late is the rank that a kernel has given up on, or -1. The kernel has then ended with an error, and the results of
  // the step are lost.
  int Late() const;

 private:
  explicit Peers(SharedPlace place) : place_(place) {}
  // Share makes this rank's memory, with nothing in it, and Open opens another rank's. name is the memory's of the
  // host, handle the device's. They return an error's text, or "".
  std::string Share(std::string* name, cudaIpcMemHandle_t* handle);
  std::string Open(int rank, const std::string& name, const cudaIpcMemHandle_t& handle);
  std::string Map(int rank, const std::string& name, int flags);
  // MapMarks maps the page of the host in which each rank notes that it has closed the other ranks' memory.
  void MapMarks(const std::string& name, int flags);

  const SharedPlace place_;
  PeerView view_ = {};
  void* mapped_[kMostPeers] = {};  // memory of the host, as this process sees it
  PeerStatus* status_ = nullptr;   // as the host sees it
  char* marks_ = nullptr;          // of the ranks; null if the host has no memory to share
};

}  // namespace mojo
