// Memory that the GPUs of one host share, for the collective ops: one process is one rank and has one GPU.
#pragma once

#include <stddef.h>

#include <functional>
#include <memory>
#include <string>

#include "collective/cuda/peer_view.h"

namespace mojo {

// GatherBytes gathers `bytes` bytes of each rank in `all`, in the order of ranks. All ranks call it, in the same order.
typedef std::function<bool(const void* mine, void* all, size_t bytes)> GatherBytes;

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
