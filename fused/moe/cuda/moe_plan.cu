// Sorts choices by expert, on the device.
//
// One launch with a block for each expert. Every block counts all choices, which locates its own without waiting for
// another block; then it lists its own in order. At 32768 choices and 128 experts a block reads 256 KB from L2 twice:
// some 6 us; at 512, 2 us.
#include "moe/cuda/moe.cuh"

namespace mojo {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kLoaded = 8;  // choices of a thread whose ids are in flight at once

// Loaded are the experts of a warp's choices from c on, 32 * kLoaded of them: -1 from end on and for invalid ids.
struct Loaded {
  int expert[kLoaded];

  __device__ __forceinline__ Loaded(const int64_t* ids, int c, int end, int experts) {
#pragma unroll
    for (int i = 0; i < kLoaded; ++i) {
      const int at = c + i * 32 + static_cast<int>(threadIdx.x % 32);
      const int64_t id = at < end ? ids[at] : -1;
      expert[i] = static_cast<uint64_t>(id) < static_cast<uint64_t>(experts) ? static_cast<int>(id) : -1;
    }
  }
};

// Sums adds up two numbers over the block.
__device__ __forceinline__ int2 Sums(int2 v, int2* shared) {
  v.x = __reduce_add_sync(0xffffffffu, v.x);
  v.y = __reduce_add_sync(0xffffffffu, v.y);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  int2 sum = make_int2(0, 0);
  for (int w = 0; w < kWarps; ++w) sum.x += shared[w].x, sum.y += shared[w].y;
  return sum;
}

__global__ __launch_bounds__(kThreads) void Plan(const int64_t* ids, const void* weights, MojoType weights_type,
                                                 int choices, int experts, int tile, MoEPlan plan) {
  extern __shared__ int counts[];  // [experts]
  __shared__ int2 shared[kWarps];
  __shared__ int of_warp[kWarps];
  WaitForPrevious();
  LetNextStart();
  const int expert = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int e = threadIdx.x; e < experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  // Each warp has one contiguous run of the choices, a multiple of 32.
  const int stretch = static_cast<int>(DivideUp(choices, kThreads)) * 32;
  const int begin = min(warp * stretch, choices), end = min(begin + stretch, choices);
  int mine = 0;
#pragma unroll 1
  for (int c = begin; c < end; c += 32 * kLoaded) {
    const Loaded loaded(ids, c, end, experts);
#pragma unroll
    for (const int id : loaded.expert) {
      if (id >= 0) atomicAdd(&counts[id], 1);
      mine += __popc(__ballot_sync(0xffffffffu, id == expert));
    }
  }
  if (lane == 0) of_warp[warp] = mine;
  __syncthreads();
  int2 before = make_int2(0, 0);
  for (int e = threadIdx.x; e < expert; e += kThreads) {
    before.x += counts[e];
    before.y += (counts[e] + tile - 1) / tile;
  }
  before = Sums(before, shared);
  const int count = counts[expert], tiles = (count + tile - 1) / tile;
  for (int t = threadIdx.x; t < tiles; t += kThreads) plan.tiles[before.y + t] = {expert, before.y, before.x, count};
  if (expert == experts - 1 && threadIdx.x == 0) {
    *plan.tile_count = before.y + tiles;
    plan.begun[0] = plan.begun[1] = 0;
  }
  int place = before.x;
  for (int w = 0; w < warp; ++w) place += of_warp[w];
  if (of_warp[warp] == 0) return;
#pragma unroll 1
  for (int c = begin; c < end; c += 32 * kLoaded) {
    const Loaded loaded(ids, c, end, experts);
#pragma unroll
    for (int i = 0; i < kLoaded; ++i) {
      const bool is = loaded.expert[i] == expert;
      const uint32_t ballot = __ballot_sync(0xffffffffu, is);
      if (is) {
        const int at = place + __popc(ballot & ((1u << lane) - 1)), choice = c + i * 32 + lane;
        plan.choice[at] = choice;
        plan.weight[at] = Number(weights, choice, weights_type);
      }
      place += __popc(ballot);
    }
  }
}

}  // namespace

cudaError_t PlanMoE(const MojoMoEArgs& a, size_t tile, const MoEPlan& plan, cudaStream_t stream) {
  return Launch(Plan, static_cast<unsigned>(a.experts), kThreads, a.experts * sizeof(int), stream, a.ids, a.weights,
                a.weights_type, static_cast<int>(a.tokens * a.top_k), static_cast<int>(a.experts),
                static_cast<int>(tile), plan);
}

}  // namespace mojo
