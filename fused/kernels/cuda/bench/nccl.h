// NCCL for programs that time kernels beside it, loaded at run time.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "collective/cuda/peers.h"

// Nccl is a group of ranks of NCCL on the current device. A result other than 0 is an error.
class Nccl {
 public:
  static constexpr int kBFloat16 = 9, kSum = 0;  // NCCL's numbers

  // All ranks make one. error() says why it cannot be used, or is empty.
  Nccl(int rank, int ranks, const mojo::GatherBytes& gather) {
    Load();
    // Rank 0's name of the group is for all; a rank without the library says so to all.
    struct Introduction {
      Id id;
      int ready;
    };
    Introduction own = {};
    own.ready = error_.empty() && (rank != 0 || get_id_(&own.id) == 0);
    std::vector<Introduction> all(ranks);
    if (!gather(&own, all.data(), sizeof(own))) error_ = "a rank has ended";
    for (int r = 0; r < ranks && error_.empty(); ++r) {
      if (!all[r].ready) error_ = "rank " + std::to_string(r) + " has no NCCL";
    }
    if (error_.empty() && join_(&group_, ranks, all[0].id, rank) != 0) error_ = "ncclCommInitRank failed";
  }
  ~Nccl() {
    if (group_ != nullptr) abort_(group_);
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  const std::string& error() const { return error_; }
  int AllReduce(const void* x, void* y, size_t count, cudaStream_t stream) const {
    return reduce_(x, y, count, kBFloat16, kSum, group_, stream);
  }

 private:
  struct Id {
    char bytes[128];
  };

  void Load() {
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      error_ = dlerror();
      return;
    }
    const auto find = [&](auto* function, const char* name) {
      *function = reinterpret_cast<std::decay_t<decltype(*function)>>(dlsym(library, name));
      if (*function == nullptr) error_ = std::string("it has no ") + name;
    };
    find(&get_id_, "ncclGetUniqueId");
    find(&join_, "ncclCommInitRank");
    find(&abort_, "ncclCommAbort");
    find(&reduce_, "ncclAllReduce");
  }

  int (*get_id_)(Id*) = nullptr;
  int (*join_)(void**, int, Id, int) = nullptr;
  int (*abort_)(void*) = nullptr;
  int (*reduce_)(const void*, void*, size_t, int, int, void*, cudaStream_t) = nullptr;
  void* group_ = nullptr;
  std::string error_;
};
