// Shares memory of the GPUs of one host through CUDA's interprocess handles.
#include "collective/cuda/peers.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "cuda/common.cuh"

namespace mojo {
namespace {

// Introduction is what a rank tells the others.
struct Introduction {
  char host[64];
  cudaIpcMemHandle_t handle;
  int blocks;
  int error;  // of the runtime, if it has no memory to share
};

// HostName is the same for all processes of a host, since its start.
void HostName(char (&name)[64]) {
  memset(name, 0, sizeof(name));
  std::ifstream id("/proc/sys/kernel/random/boot_id");
  if (!id.getline(name, sizeof(name)) || name[0] == 0) gethostname(name, sizeof(name) - 1);
}

// Clear makes the buffers of Peers empty.
//
// Registers: 16. No shared memory.
__global__ void ClearPeers(uint4* buffers, size_t count) {
  const uint32_t empty = 0x80000000;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    buffers[i] = make_uint4(empty, empty, empty, empty);
  }
}

// Allocate makes this rank's memory, with nothing in it.
cudaError_t Allocate(PeerView* view, PeerStatus** status) {
  if (cudaError_t e = cudaMalloc(&view->of[view->rank], PeerView::kBytes)) return e;
  char* const own = view->of[view->rank];
  if (cudaError_t e = cudaMemset(own, 0, PeerView::kBytes)) return e;
  ClearPeers<<<256, 256>>>(reinterpret_cast<uint4*>(own + PeerView::kSignalBytes), 3 * PeerView::kOnceBytes / 16);
  if (cudaError_t e = cudaGetLastError()) return e;
  if (cudaError_t e = cudaMalloc(&view->state, sizeof(PeerState))) return e;
  const PeerState first = {1, 0, 0, 0};
  if (cudaError_t e = cudaMemcpy(view->state, &first, sizeof(first), cudaMemcpyHostToDevice)) return e;
  if (cudaError_t e = cudaHostAlloc(status, sizeof(PeerStatus), cudaHostAllocMapped)) return e;
  **status = {};
  if (cudaError_t e = cudaHostGetDevicePointer(reinterpret_cast<void**>(&view->status), *status, 0)) return e;
  return cudaDeviceSynchronize();
}

}  // namespace

std::unique_ptr<Peers> Peers::Make(int rank, int ranks, double patience, const GatherBytes& gather,
                                   std::string* error) {
  if (ranks > kMostPeers) {
    *error = std::to_string(ranks) + " ranks share memory; at most " + std::to_string(kMostPeers) + " can";
    return nullptr;
  }
  std::unique_ptr<Peers> peers(new Peers);
  PeerView& view = peers->view_;
  view.rank = rank, view.ranks = ranks;
  view.once_slot = static_cast<uint32_t>(PeerView::kOnceBytes / ranks / 256 * 256);
  view.part_slot = static_cast<uint32_t>(PeerView::kPartBytes / ranks / 256 * 256);
  view.patience = static_cast<uint64_t>(patience * 1e9);

  Introduction own = {};
  HostName(own.host);
  own.blocks = static_cast<int>(std::min<size_t>(TheDevice().multiprocessors, PeerView::kMostBlocks));
  cudaError_t failed = Allocate(&view, &peers->status_);
  if (failed == cudaSuccess) failed = cudaIpcGetMemHandle(&own.handle, view.of[rank]);
  own.error = failed;
  std::vector<Introduction> all(ranks);
  const auto broken = [&] {
    *error = "the ranks could not exchange the places of their memory";
    return nullptr;
  };
  if (!gather(&own, all.data(), sizeof(own))) return broken();
  view.blocks = own.blocks;
  std::string reason;
  for (int r = 0; r < ranks && reason.empty(); ++r) {
    view.blocks = std::min(view.blocks, all[r].blocks);
    if (all[r].error != cudaSuccess) {
      reason = cudaGetErrorString(static_cast<cudaError_t>(all[r].error));
    } else if (memcmp(all[r].host, own.host, sizeof(own.host)) != 0) {
      reason = "rank " + std::to_string(r) + " is on another host than rank " + std::to_string(rank);
    } else if (r != rank) {
      void* memory = nullptr;
      failed = cudaIpcOpenMemHandle(&memory, all[r].handle, cudaIpcMemLazyEnablePeerAccess);
      if (failed != cudaSuccess) {
        cudaGetLastError();
        reason = "rank " + std::to_string(rank) + " cannot open the memory of rank " + std::to_string(r) + ": " +
                 cudaGetErrorString(failed);
      }
      view.of[r] = static_cast<char*>(memory);
    }
  }
  // All ranks use the memory, or none. Everyone has opened it before anyone writes.
  struct Result {
    char reason[200];
  };
  Result mine = {};
  snprintf(mine.reason, sizeof(mine.reason), "%s", reason.c_str());
  std::vector<Result> results(ranks);
  if (!gather(&mine, results.data(), sizeof(mine))) return broken();
  for (Result& r : results) {
    r.reason[sizeof(r.reason) - 1] = 0;
    if (r.reason[0] == 0) continue;
    *error = r.reason;
    return nullptr;
  }
  return peers;
}

Peers::~Peers() {
  for (int r = 0; r < view_.ranks; ++r) {
    if (view_.of[r] == nullptr) continue;
    r == view_.rank ? cudaFree(view_.of[r]) : cudaIpcCloseMemHandle(view_.of[r]);
  }
  cudaFree(view_.state);
  cudaFreeHost(status_);
  cudaGetLastError();  // of a device whose kernels have failed
}

int Peers::Late() const { return *static_cast<volatile int*>(&status_->late) - 1; }

}  // namespace mojo
