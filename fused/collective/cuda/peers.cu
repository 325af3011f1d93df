// Shares memory between the ranks of a host: of the GPUs through CUDA's interprocess handles, or of the host.
#include "collective/cuda/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <vector>

#include "cuda/common.cuh"

namespace mojo {
namespace {

// Introduction is what a rank tells the others.
struct Introduction {
  char host[64];
  char name[64];
  char reason[200];  // why it has no memory to share, or ""
  cudaIpcMemHandle_t handle;
  int blocks;
};

template <size_t kSize>
void Write(const std::string& text, char (&to)[kSize]) {
  snprintf(to, kSize, "%s", text.c_str());
}
template <size_t kSize>
std::string TextOf(const char (&from)[kSize]) {
  return std::string(from, strnlen(from, kSize));
}

// HostName is the same for all processes of a host, since its start.
std::string HostName() {
  std::ifstream id("/proc/sys/kernel/random/boot_id");
  std::string name;
  char text[64] = "";
  if (std::getline(id, name) && !name.empty()) return name;
  gethostname(text, sizeof(text) - 1);
  return text;
}

std::string Reason(cudaError_t error) {
  if (error == cudaSuccess) return "";
  cudaGetLastError();
  return cudaGetErrorString(error);
}

// Name is the name of new memory of the host.
std::string Name() {
  static std::atomic<int> made{0};
  return "/mojo-" + std::to_string(getpid()) + "-" + std::to_string(made++);
}

// Closed is memory of the device that this rank has closed, and the marks of the ranks that have.
struct Closed {
  char* memory;
  volatile char* marks;
  int ranks;
};

// FreeClosed adds memory, unless it is null, and frees all that no rank has open. CUDA must not free it earlier.
void FreeClosed(const Closed& more) {
  static std::mutex& mutex = *new std::mutex;
  static std::vector<Closed>& all = *new std::vector<Closed>;
  const std::lock_guard<std::mutex> lock(mutex);
  if (more.memory != nullptr) all.push_back(more);
  for (size_t i = 0; i < all.size();) {
    const Closed c = all[i];
    if (std::count(c.marks, c.marks + c.ranks, 1) < c.ranks) {
      ++i;
      continue;
    }
    cudaFree(c.memory);
    munmap(const_cast<char*>(c.marks), kMostPeers);
    all.erase(all.begin() + static_cast<long>(i));
  }
}

// MakeEmpty writes -0.0 into memory of the device or the host.
std::string MakeEmpty(char* to, size_t bytes) {
  const std::vector<uint32_t> empty(std::min<size_t>(bytes, size_t{1} << 20) / 4, 0x80000000);
  for (size_t at = 0; at < bytes; at += empty.size() * 4) {
    const size_t part = std::min(bytes - at, empty.size() * 4);
    if (cudaError_t e = cudaMemcpy(to + at, empty.data(), part, cudaMemcpyDefault)) return Reason(e);
  }
  return "";
}

}  // namespace

// Map maps a file in the host's shared memory.
std::string Peers::Map(int rank, const std::string& name, int flags) {
  const int file = shm_open(name.c_str(), flags | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return std::string("shared memory of the host: ") + strerror(errno);
  int error = (flags & O_CREAT) != 0 ? posix_fallocate(file, 0, static_cast<off_t>(view_.Bytes())) : 0;
  void* const memory =
      error == 0 ? mmap(nullptr, view_.Bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (error == 0 && memory == MAP_FAILED) error = errno;
  close(file);
  if (error != 0) return std::string("shared memory of the host (/dev/shm): ") + strerror(error);
  mapped_[rank] = memory;
  if (cudaError_t e = cudaHostRegister(memory, view_.Bytes(), cudaHostRegisterMapped)) return Reason(e);
  return Reason(cudaHostGetDevicePointer(reinterpret_cast<void**>(&view_.of[rank]), memory, 0));
}

void Peers::MapMarks(const std::string& name, int flags) {
  const int file = shm_open(name.c_str(), flags | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return;
  void* memory = MAP_FAILED;
  if ((flags & O_CREAT) == 0 || posix_fallocate(file, 0, kMostPeers) == 0) {
    memory = mmap(nullptr, kMostPeers, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (memory != MAP_FAILED) marks_ = static_cast<char*>(memory);
}

std::string Peers::Share(std::string* name, cudaIpcMemHandle_t* handle) {
  const int rank = view_.rank;
  *name = Name();
  if (place_ == SharedPlace::kHost) {
    const std::string reason = Map(rank, *name, O_CREAT | O_EXCL);
    if (!reason.empty()) return reason;
  } else {
    if (rank == 0) MapMarks(*name, O_CREAT | O_EXCL);
    if (cudaError_t e = cudaMalloc(&view_.of[rank], view_.Bytes())) return Reason(e);
    if (cudaError_t e = cudaIpcGetMemHandle(handle, view_.of[rank])) return Reason(e);
  }
  if (cudaError_t e = cudaMemset(view_.of[rank], 0, PeerView::kSignalBytes)) return Reason(e);
  const std::string reason = MakeEmpty(view_.of[rank] + view_.OnceAt(0, 0), view_.PartAt(0, 0) - view_.OnceAt(0, 0));
  if (!reason.empty()) return reason;
  const PeerState first = {1, 0, 0, 0};
  if (cudaError_t e = cudaMalloc(&view_.state, sizeof(first))) return Reason(e);
  if (cudaError_t e = cudaMemcpy(view_.state, &first, sizeof(first), cudaMemcpyHostToDevice)) return Reason(e);
  if (cudaError_t e = cudaHostAlloc(&status_, sizeof(PeerStatus), cudaHostAllocMapped)) return Reason(e);
  *status_ = {};
  if (cudaError_t e = cudaHostGetDevicePointer(reinterpret_cast<void**>(&view_.status), status_, 0)) return Reason(e);
  return Reason(cudaDeviceSynchronize());
}

std::string Peers::Open(int rank, const std::string& name, const cudaIpcMemHandle_t& handle) {
  if (place_ == SharedPlace::kHost) return Map(rank, name, 0);
  void* memory = nullptr;
  const cudaError_t e = cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess);
  view_.of[rank] = static_cast<char*>(memory);
  return Reason(e);
}

std::unique_ptr<Peers> Peers::MakeIn(SharedPlace place, int rank, int ranks, double patience, const GatherBytes& gather,
                                     std::string* error) {
  FreeClosed({});
  std::unique_ptr<Peers> peers(new Peers(place));
  PeerView& view = peers->view_;
  const size_t megabyte = size_t{1} << 20;
  const size_t once = (place == SharedPlace::kHost ? 1 : 4) * megabyte,
               part = (place == SharedPlace::kHost ? 1 : 16) * megabyte;
  view.rank = rank, view.ranks = ranks;
  view.on_host = place == SharedPlace::kHost;
  view.once_slot = static_cast<uint32_t>(once / ranks / 256 * 256);
  view.part_slot = static_cast<uint32_t>(part / ranks / 256 * 256);
  view.patience = static_cast<uint64_t>(patience * 1e9);
  view.blocks = static_cast<int>(std::min<size_t>(TheDevice().multiprocessors, PeerView::kMostBlocks));

  Introduction own = {};
  std::string name;
  const std::string host = HostName();
  Write(peers->Share(&name, &own.handle), own.reason);
  Write(host, own.host), Write(name, own.name);
  own.blocks = view.blocks;
  std::vector<Introduction> all(ranks);
  std::string reason;
  bool told = gather(&own, all.data(), sizeof(own));
  for (int r = 0; r < ranks && told && reason.empty(); ++r) {
    view.blocks = std::min(view.blocks, all[r].blocks);
    if (TextOf(all[r].host) != TextOf(own.host)) {
      reason = "rank " + std::to_string(r) + " is on another host than rank " + std::to_string(rank);
    } else if (all[r].reason[0] != 0) {
      reason = "rank " + std::to_string(r) + ": " + TextOf(all[r].reason);
    } else if (r != rank) {
      reason = peers->Open(r, TextOf(all[r].name), all[r].handle);
      if (!reason.empty()) reason = "rank " + std::to_string(rank) + " to rank " + std::to_string(r) + ": " + reason;
    }
  }
  if (told && place == SharedPlace::kDevice && rank != 0) peers->MapMarks(TextOf(all[0].name), 0);
  // All ranks use the memory, or none. Everyone has opened it before anyone writes.
  struct Result {
    char reason[280];
  };
  Result mine = {};
  Write(reason, mine.reason);
  std::vector<Result> results(ranks);
  told = told && gather(&mine, results.data(), sizeof(mine));
  shm_unlink(name.c_str());
  if (!told) {
    *error = "the ranks could not tell each other where their memory is";
    return nullptr;
  }
  for (const Result& r : results) {
    if (r.reason[0] == 0) continue;
    *error = TextOf(r.reason);
    return nullptr;
  }
  return peers;
}

std::unique_ptr<Peers> Peers::Make(int rank, int ranks, double patience, const GatherBytes& gather,
                                   std::string* error) {
  if (ranks > kMostPeers) {
    *error =
        "there are " + std::to_string(ranks) + " ranks; at most " + std::to_string(kMostPeers) + " can share memory";
    return nullptr;
  }
  std::string reasons[2];
  for (const SharedPlace place : {SharedPlace::kDevice, SharedPlace::kHost}) {
    auto peers = MakeIn(place, rank, ranks, patience, gather, &reasons[place == SharedPlace::kHost]);
    if (peers != nullptr) return peers;
  }
  *error = reasons[0] + (reasons[0] == reasons[1] ? "" : "; " + reasons[1]);
  return nullptr;
}

Peers::~Peers() {
  for (int r = 0; r < view_.ranks; ++r) {
    if (mapped_[r] != nullptr) {
      cudaHostUnregister(mapped_[r]);
      munmap(mapped_[r], view_.Bytes());
    } else if (view_.of[r] != nullptr && r != view_.rank) {
      cudaIpcCloseMemHandle(view_.of[r]);
    }
  }
  if (marks_ != nullptr) {
    *static_cast<volatile char*>(marks_ + view_.rank) = 1;
    FreeClosed({view_.of[view_.rank], marks_, view_.ranks});
  }
  cudaFree(view_.state);
  cudaFreeHost(status_);
  cudaGetLastError();  // of a device whose kernels have failed
}

int Peers::Late() const { return *static_cast<volatile int*>(&status_->late) - 1; }

}  // namespace mojo
