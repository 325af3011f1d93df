// Processes for the programs that use several GPUs: one rank each, with memory that all share.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "collective/cuda/peers.h"
#include "cuda/tests/host.h"

// Board is memory of all processes, in which they exchange bytes.
struct Board {
  static constexpr size_t kMost = size_t{1} << 20;
  std::atomic<int> arrived, round;
  std::atomic<bool> broken;
  char bytes[mojo::kMostPeers][kMost];

  static Board* Make() {
    void* const memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) perror("mmap"), exit(1);
    return new (memory) Board();
  }
  // Wait is a barrier of the ranks. It returns false if a rank has ended.
  bool Wait(int ranks) {
    const int now = round;
    if (++arrived == ranks) {
      arrived = 0, ++round;
      return true;
    }
    while (round == now && !broken) sched_yield();
    return round != now;
  }
  bool Gather(int rank, int ranks, const void* mine, void* all, size_t size) {
    if (size > kMost) return false;
    memcpy(bytes[rank], mine, size);
    if (!Wait(ranks)) return false;
    for (int r = 0; r < ranks; ++r) memcpy(static_cast<char*>(all) + r * size, bytes[r], size);
    return Wait(ranks);
  }
};

// Rank is one of the processes.
struct Rank {
  Board* board;
  int rank, ranks;

  bool Wait() const { return board->Wait(ranks); }
  mojo::GatherBytes Gather() const {
    return [this](const void* mine, void* all, size_t size) { return board->Gather(rank, ranks, mine, all, size); };
  }
};

// Devices counts the GPUs in a process of its own: a process that has used CUDA must not fork.
inline int Devices() {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    _exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

// RunRanks runs body in `ranks` processes, each with a GPU of its own if there are enough, and returns how many of them
// failed. A process that is not done in `seconds` is ended.
inline int RunRanks(int ranks, int devices, unsigned seconds, const std::function<int(const Rank&)>& body) {
  Board* const board = Board::Make();
  fflush(stdout);
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    alarm(seconds);
    Check(cudaSetDevice(r % devices), "device");
    const int result = body({board, r, ranks});
    fflush(stdout);
    _exit(result);
  }
  int failed = 0;
  for (size_t n = 0; n < children.size(); ++n) {
    int status = 0;
    const pid_t child = waitpid(-1, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    ++failed;
    board->broken = true;
    const int rank = static_cast<int>(std::find(children.begin(), children.end(), child) - children.begin());
    if (WIFSIGNALED(status)) printf("rank %d of %d: ended by signal %d\n", rank, ranks, WTERMSIG(status));
  }
  munmap(board, sizeof(Board));
  return failed;
}
