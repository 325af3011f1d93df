// The memory that the collective nodes of one session share with those of other ranks.
#pragma once

#include <memory>
#include <mutex>

#include "collective/common/group.h"
#include "collective/cuda/peers.h"
#include "cuda/backends.h"

namespace mojo {

// SharedStream is a node's part of a stream of its rank.
class SharedStream {
 public:
  SharedStream() = default;
  ~SharedStream();
  SharedStream(const SharedStream&) = delete;
  SharedStream& operator=(const SharedStream&) = delete;

  // Join returns how the node's kernels see the other ranks' memory, null with one rank. At the first node of a stream,
  // the ranks share new memory; it is freed with the last node that uses it.
  OrtStatus* Join(const Api& api, const OpDef& def, const Member& member, OrtKernelContext* context,
                  const PeerView** view);

 private:
  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<Peers> peers_;
};

}  // namespace mojo
