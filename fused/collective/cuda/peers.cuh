// Shared parts of the collective kernels: messages in the memory of peers, and waiting for them.
#pragma once

#include "collective/cuda/peer_view.h"
#include "cuda/common.cuh"

namespace mojo {

// Empty is -0.0 in each place of a message: no word of a message is.
constexpr uint32_t kEmpty = 0x80000000;

// Step is what a launch does with the memory of peers.
struct Step {
  const PeerView& p;
  uint64_t number;
  uint32_t buffer, clear;

  // All threads of all blocks make one, after WaitForPrevious.
  __device__ __forceinline__ explicit Step(const PeerView& p) : p(p) {
    const volatile PeerState* const state = p.state;
    number = state->step, buffer = state->buffer, clear = state->clear;
  }

  // OnceTo is where this rank's message for a peer begins, OnceFrom where the peer's for this rank does. PartTo and
  // PartFrom are the same for messages that need signals.
  __device__ __forceinline__ char* OnceTo(int peer) const { return p.of[peer] + p.OnceAt(buffer, p.rank); }
  __device__ __forceinline__ char* OnceFrom(int peer) const { return p.of[p.rank] + p.OnceAt(buffer, peer); }
  __device__ __forceinline__ char* PartTo(int peer) const { return p.of[peer] + p.PartAt(buffer, p.rank); }
  __device__ __forceinline__ char* PartFrom(int peer) const { return p.of[p.rank] + p.PartAt(buffer, peer); }

  // ClearLast empties the buffer of the last step. Its messages have been read. The next messages come into it two
  // steps from now: a peer sends these only after it has this rank's message of the next step.
  __device__ __forceinline__ void ClearLast() const {
    const uint32_t last = buffer == 0 ? 2 : buffer - 1;
    for (uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) * 16; at < clear; at += gridDim.x * blockDim.x * 16) {
      for (int r = 0; r < p.ranks; ++r) {
        if (r == p.rank) continue;
        *reinterpret_cast<uint4*>(p.of[p.rank] + p.OnceAt(last, r) + at) = make_uint4(kEmpty, kEmpty, kEmpty, kEmpty);
      }
    }
  }

  // End counts a block that has read its messages. The last one makes this the last step, which leaves `bytes` bytes.
  __device__ __forceinline__ void End(uint32_t bytes) const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    // What ClearLast wrote must be in the buffer before the next message of this rank is in a peer's.
    p.on_host ? __threadfence_system() : __threadfence();
    if (atomicAdd(&p.state->ended, 1u) != gridDim.x - 1) return;
    volatile PeerState* const state = p.state;
    state->ended = 0, state->clear = bytes, state->step = number + 1, state->buffer = buffer == 2 ? 0 : buffer + 1;
  }
};

__device__ __forceinline__ uint64_t Nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Patience ends the kernel with an error after a wait that is too long.
struct Patience {
  const PeerView& p;
  uint64_t begin = 0;
  int tries = 0;

  __device__ __forceinline__ explicit Patience(const PeerView& p) : p(p) {}
  __device__ __forceinline__ void Wait(int peer) {
    if (++tries % 1024 != 0) return;
    const uint64_t now = Nanoseconds();
    if (begin == 0) begin = now;
    if (now - begin < p.patience) return;
    *static_cast<volatile int*>(&p.status->late) = peer + 1;
    __threadfence_system();
    __trap();
  }
};

// LoadNow reads memory that another device writes.
__device__ __forceinline__ uint4 LoadNow(const void* from) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

__device__ __forceinline__ bool IsThere(const uint4& v) {
  return v.x != kEmpty && v.y != kEmpty && v.z != kEmpty && v.w != kEmpty;
}

// Unsigned makes each -0.0 of a pack 0.0.
template <class T, int kCount>
__device__ __forceinline__ Pack<T, kCount> Unsigned(Pack<T, kCount> pack) {
#pragma unroll
  for (int i = 0; i < pack.kWords; ++i) {
    uint32_t& w = pack.words[i];
    if constexpr (sizeof(T) == 4) {
      if (w == kEmpty) w = 0;
    } else {
      if ((w & 0xffff0000u) == 0x80000000u) w &= 0x0000ffffu;
      if ((w & 0x0000ffffu) == 0x00008000u) w &= 0xffff0000u;
    }
  }
  return pack;
}

template <class T>
__device__ __forceinline__ Pack<T, kPackSize<T>> AsPack(const uint4& v) {
  Pack<T, kPackSize<T>> pack;
  pack.words[0] = v.x, pack.words[1] = v.y, pack.words[2] = v.z, pack.words[3] = v.w;
  return pack;
}

template <class T>
__device__ __forceinline__ uint4 AsWords(const Pack<T, kPackSize<T>>& pack) {
  return make_uint4(pack.words[0], pack.words[1], pack.words[2], pack.words[3]);
}

// AddTo adds a pack to float32 sums.
template <class T>
__device__ __forceinline__ void AddTo(float (&sum)[kPackSize<T>], const Pack<T, kPackSize<T>>& pack) {
  float v[kPackSize<T>];
  ToFloats(pack, v);
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) sum[i] += v[i];
}

// SendOnce stores a pack in the peers' buffers, at a place of the message.
template <int kRanks, class T>
__device__ __forceinline__ void SendOnce(const Step& step, size_t at, const Pack<T, kPackSize<T>>& pack) {
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    if (r < step.p.ranks && r != step.p.rank) *reinterpret_cast<uint4*>(step.OnceTo(r) + at) = AsWords(pack);
  }
}

// SumOnce waits for the peers' packs at a place of the message, and returns the sum of all ranks' packs, in the order
// of ranks, rounded to T.
template <int kRanks, class T>
__device__ __forceinline__ Pack<T, kPackSize<T>> SumOnce(const Step& step, size_t at,
                                                         const Pack<T, kPackSize<T>>& own) {
  const PeerView& p = step.p;
  uint4 got[kRanks];
  Patience patience(p);
  for (int missing = 0; missing >= 0;) {
    missing = -1;
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r < p.ranks && r != p.rank) got[r] = LoadNow(step.OnceFrom(r) + at);
    }
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r < p.ranks && r != p.rank && !IsThere(got[r])) missing = r;
    }
    if (missing >= 0) patience.Wait(missing);
  }
  float sum[kPackSize<T>] = {};
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    if (r < p.ranks) AddTo<T>(sum, r == p.rank ? own : AsPack<T>(got[r]));
  }
  return PackFloats<T>(sum);
}

}  // namespace mojo
