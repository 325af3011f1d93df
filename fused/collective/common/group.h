// The ranks that this process exchanges tensors with.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "collective/common/transport.h"
#include "common/attributes.h"

namespace mojo {

// Member is what a collective node knows of its ranks.
struct Member {
  int rank = 0, ranks = 1;
  Header header;  // of its exchanges

  // Init reads the node's name, and checks the node's rank against the launcher's. A node with one rank needs none. The
  // process begins to connect to the other ranks, in a thread.
  OrtStatus* Init(const KernelInit& init, int64_t of_rank, int64_t of_ranks, const Text& plan);
};

// Turn is one run of a node with several ranks. The nodes of a process take turns.
class Turn {
 public:
  explicit Turn(const Member& member);
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Exchange sends send[r] to each other rank r and receives receive[r] from it. bytes is the size of the tensor, which
  // must be equal on all ranks. The first exchange of a process waits until all ranks are there, and as long as they
  // load their models.
  OrtStatus* Exchange(const Api& api, const Part* send, const Place* receive, size_t bytes);

  // Gather receives bytes from every rank into all, in the order of ranks.
  OrtStatus* Gather(const Api& api, const void* mine, void* all, size_t bytes);

  // Staging returns memory for bytes that stays until the turn ends, or null.
  char* Staging(size_t bytes);

 private:
  const Member& member_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace mojo
