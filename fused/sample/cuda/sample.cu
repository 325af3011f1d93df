// Sample: a block for each row, or a cluster of blocks if there are few rows.
//
// A weight is an integer, so that sums are exact in any order: atomics, clusters of any size and other rows leave the
// token as it is. Nothing is sorted. Top-k and top-p select a key by its digits, from histograms of tokens and of
// weights. The keys are integers that are ordered as the logits are.
#include "cuda/cluster.cuh"
#include "cuda/keys.cuh"

namespace mojo {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 256;
constexpr int kSegments = 256;                                             // of the vocabulary, for the sum by ids
constexpr size_t kWorkers = 64;                                            // rows that have scratch memory at one time
constexpr uint32_t kLeastFinite = 0x00800000u, kMostFinite = 0xff7fffffu;  // keys

// Weight is 2^40 * exp(d) for d <= 0, rounded to an integer. Each operation rounds, as in the definition.
__device__ __forceinline__ uint64_t Weight(double d) {
  if (!(d >= -29.0)) return 0;
  const double n = rint(__dmul_rn(d, 1.4426950408889634));
  const double x = __dsub_rn(__dsub_rn(d, __dmul_rn(n, 0x1.62e42feep-1)), __dmul_rn(n, 1.90821492927058770002e-10));
  const double term[] = {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                         1.0 / 24,      1.0 / 6,      1.0 / 2,     1.0,        1.0};
  double y = 1.0 / 39916800;
#pragma unroll
  for (int i = 0; i < 11; ++i) y = __dadd_rn(__dmul_rn(y, x), term[i]);
  const double scale = __longlong_as_double((1023ll + 40 + static_cast<long long>(n)) << 52);  // 2^(n + 40)
  return static_cast<uint64_t>(__double2ll_rn(__dmul_rn(y, scale)));
}

struct Shared {
  uint64_t bins[2][kBins];  // of this block, in turns: other blocks may still read the last ones
  uint64_t all[kBins];      // of all blocks
  uint64_t number[2];       // of this block, in turns
  uint64_t warps[kWarps];
  uint64_t left;
  uint32_t digit;
};

// Selected is the result of Select: a key, and the rest of the target after the keys above it.
struct Selected {
  uint32_t key;
  uint64_t left;
};

// Team is the blocks that work on one row.
struct Team {
  Shared* s;
  int size, rank, turn = 0;
  size_t begin = 0, end = 0;  // the ids of this block

  __device__ __forceinline__ void Sync() const {
#if __CUDA_ARCH__ >= 900
    if (size > 1) {
      ReleaseToCluster();
      WaitForCluster();
      return;
    }
#endif
    __syncthreads();
  }

  // There reads a number of another block's shared memory.
  __device__ __forceinline__ uint64_t There(const uint64_t* p, int block) const {
#if __CUDA_ARCH__ >= 900
    if (size > 1) {
      uint64_t v;
      asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(v) : "r"(InBlock(p, block)) : "memory");
      return v;
    }
#endif
    return *p;
  }

  template <class Combine>
  __device__ uint64_t Reduce(uint64_t v, Combine combine) {
    for (int step = 16; step > 0; step /= 2) v = combine(v, __shfl_xor_sync(kAll, v, step));
    if (threadIdx.x % 32 == 0) s->warps[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
      v = threadIdx.x < kWarps ? s->warps[threadIdx.x] : 0;
      for (int step = 16; step > 0; step /= 2) v = combine(v, __shfl_xor_sync(kAll, v, step));
      if (threadIdx.x == 0) s->number[turn] = v;
    }
    Sync();
    v = There(&s->number[turn], 0);
    for (int b = 1; b < size; ++b) v = combine(v, There(&s->number[turn], b));
    turn ^= 1;
    return v;
  }
  __device__ uint64_t Sum(uint64_t v) {
    return Reduce(v, [](uint64_t a, uint64_t b) { return a + b; });
  }
  __device__ uint64_t Most(uint64_t v) {
    return Reduce(v, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  }

  // Select finds the greatest key such that the amounts of the tokens with this key or a greater one sum to target,
  // digit by digit. weights has the amounts; if it is null, each is 1.
  __device__ Selected Select(const uint32_t* keys, const uint64_t* weights, uint64_t target) {
    uint32_t prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
      uint64_t* bins = s->bins[turn];
      if (threadIdx.x < kBins) bins[threadIdx.x] = 0;
      __syncthreads();
      for (size_t from = begin; from < end; from += kThreads) {
        const size_t i = from + threadIdx.x;
        uint32_t key = 0;
        uint64_t amount = 0;
        if (i < end) {
          key = keys[i];
          if (shift == 24 || key >> (shift + 8) == prefix) amount = weights == nullptr ? 1 : weights[i];
        }
        const uint32_t active = __ballot_sync(kAll, amount > 0);
        if (amount == 0) continue;
        // One thread adds for all in the warp with the same digit. A weight is below 2^41.
        const uint32_t digit = key >> shift & (kBins - 1);
        const uint32_t peers = __match_any_sync(active, digit);
        const uint64_t low = __reduce_add_sync(peers, static_cast<uint32_t>(amount & 0xfffff));
        const uint64_t high = __reduce_add_sync(peers, static_cast<uint32_t>(amount >> 20));
        if (__ffs(peers) - 1 == static_cast<int>(threadIdx.x % 32)) {
          atomicAdd(reinterpret_cast<unsigned long long*>(bins + digit), low + (high << 20));
        }
      }
      Sync();
      if (threadIdx.x < kBins) {
        uint64_t sum = 0;
        for (int b = 0; b < size; ++b) sum += There(bins + threadIdx.x, b);
        s->all[threadIdx.x] = sum;
      }
      turn ^= 1;
      __syncthreads();
      if (threadIdx.x < 32) {  // a lane has eight bins, from the greatest digit on
        const int top = kBins - 1 - 8 * static_cast<int>(threadIdx.x);
        uint64_t own = 0;
        for (int j = 0; j < 8; ++j) own += s->all[top - j];
        uint64_t above = own;
        for (int step = 1; step < 32; step *= 2) {
          const uint64_t other = __shfl_up_sync(kAll, above, step);
          if (static_cast<int>(threadIdx.x) >= step) above += other;
        }
        const uint32_t reached = __ballot_sync(kAll, above >= target);
        if (static_cast<int>(threadIdx.x) == (reached == 0 ? 31 : __ffs(reached) - 1)) {
          above -= own;
          int j = 0;
          for (; j < 7 && above + s->all[top - j] < target; ++j) above += s->all[top - j];
          s->digit = top - j;
          s->left = target - above;
        }
      }
      __syncthreads();
      prefix = prefix << 8 | s->digit;
      target = s->left;
    }
    return {prefix, target};
  }
};

// Memory is the scratch memory of a row.
struct Memory {
  uint32_t* keys;     // [vocabulary]
  uint64_t* weights;  // [vocabulary]; before, counts of the earlier tokens
  uint64_t* sums;     // [kSegments]: of the weights kept for sure
  uint64_t* ties;     // [kSegments]: tokens with the last key of top-p
};

__host__ __device__ constexpr size_t Padded(size_t vocabulary) { return DivideUp(vocabulary, 32) * 32; }
__host__ __device__ constexpr size_t RowBytes(size_t vocabulary) { return 12 * Padded(vocabulary) + 16 * kSegments; }

// Penalized is a logit after the penalties. The lowest bit of count says that the token is an earlier one; the others
// say how often it was generated.
__device__ __forceinline__ float Penalized(float l, uint32_t count, const float* controls) {
  if (count == 0) return l;
  const float r = controls[4], n = static_cast<float>(count >> 1);
  if (r != 0) l = l < 0 ? __fmul_rn(l, r) : __fdiv_rn(l, r);
  l = __fsub_rn(l, __fmul_rn(controls[5], n));
  return n > 0 ? __fsub_rn(l, controls[6]) : l;
}

__device__ bool Valid(const float* c) {
  const float most = 3.402823466e38f;
  return c[0] >= 0 && c[0] <= most && c[1] >= 0 && c[1] <= most && c[2] >= 0 && c[2] <= 1 && c[3] >= 0 && c[3] <= 1 &&
         c[4] >= 0 && c[4] <= most && fabsf(c[5]) <= 2 && fabsf(c[6]) <= 2;
}

// Drawn says which tokens are kept: all above the key cut and the first ones with it, down to a least weight.
struct Drawn {
  uint32_t cut = 0;
  uint64_t ties = 0, tie_weight = 0, least = 1;
};

// Draw is run by one warp: it finds the token at which the sum of the weights by ids passes the target.
__device__ int64_t Draw(const Memory& m, const Drawn& d, int64_t random, size_t vocabulary, size_t segment) {
  const int lane = threadIdx.x;
  constexpr int kOwn = kSegments / 32;
  uint64_t own_ties = 0;
  for (int j = 0; j < kOwn; ++j) own_ties += __ldcg(&m.ties[kOwn * lane + j]);
  const auto before = [lane](uint64_t v) {  // the sum over the lanes before
    uint64_t sum = v;
    for (int step = 1; step < 32; step *= 2) {
      const uint64_t other = __shfl_up_sync(kAll, sum, step);
      if (lane >= step) sum += other;
    }
    return sum - v;
  };
  const uint64_t first_tie = before(own_ties);
  const auto weight_of = [&](int j, uint64_t* tie) {  // of a segment; tie counts those before it
    const uint64_t ties = __ldcg(&m.ties[kOwn * lane + j]), room = *tie < d.ties ? d.ties - *tie : 0;
    *tie += ties;
    return __ldcg(&m.sums[kOwn * lane + j]) + (ties < room ? ties : room) * d.tie_weight;
  };
  uint64_t own = 0, tie = first_tie;
  for (int j = 0; j < kOwn; ++j) own += weight_of(j, &tie);
  const uint64_t start = before(own), total = __shfl_sync(kAll, start + own, 31);
  random = random<0 ? 0 : random>(1ll << 53) - 1 ? (1ll << 53) - 1 : random;
  const double u = __dmul_rn(static_cast<double>(random), 0x1p-53);
  uint64_t target = static_cast<uint64_t>(__dmul_rn(u, __ull2double_rn(total)));
  target = target < total ? target : total - 1;
  int at = 0;
  tie = first_tie;
  uint64_t left = target - start, tie_at = 0;
  const uint32_t mine = __ballot_sync(kAll, target >= start && target < start + own);
  const int lane_of = __ffs(mine) - 1;
  if (lane == lane_of) {
    for (;; ++at) {
      tie_at = tie;
      const uint64_t w = weight_of(at, &tie);
      if (left < w || at == kOwn - 1) break;
      left -= w;
    }
  }
  at = kOwn * lane_of + __shfl_sync(kAll, at, lane_of);
  left = __shfl_sync(kAll, left, lane_of);
  tie_at = __shfl_sync(kAll, tie_at, lane_of);
  const size_t end = (at + 1) * segment < vocabulary ? (at + 1) * segment : vocabulary;
  for (size_t from = at * segment; from < end; from += 32) {
    const size_t i = from + lane;
    const uint32_t key = i < end ? __ldcg(&m.keys[i]) : 0;
    uint64_t w = i < end ? __ldcg(&m.weights[i]) : 0;
    const uint32_t ties = __ballot_sync(kAll, i < end && key == d.cut);
    const uint64_t rank = tie_at + __popc(ties & ((1u << lane) - 1));
    if (w < d.least || key < d.cut || (key == d.cut && rank >= d.ties)) w = 0;
    const uint64_t sum = before(w);
    const uint32_t found = __ballot_sync(kAll, left >= sum && left < sum + w);
    if (found != 0) return static_cast<int64_t>(from) + __ffs(found) - 1;
    left -= __shfl_sync(kAll, sum + w, 31);
    tie_at += __popc(ties);
  }
  return -1;  // never: the likeliest token has a weight
}

template <class T>
__device__ void SampleRow(const MojoSampleArgs& a, Team* team, const Memory& m, size_t row) {
  const size_t vocabulary = a.vocabulary;
  const float* controls = a.controls + 7 * row;
  const T* logits = static_cast<const T*>(a.logits) + row * vocabulary;
  const bool penalties = a.tokens != nullptr && (controls[4] != 0 || controls[5] != 0 || controls[6] != 0);
  uint32_t* counts = reinterpret_cast<uint32_t*>(m.weights);
  if (penalties) {
    for (size_t i = team->begin + threadIdx.x; i < team->end; i += kThreads) counts[i] = 0;
    team->Sync();
    const int64_t prompt = a.prompt == nullptr ? 0 : a.prompt[row];
    for (size_t i = team->rank * kThreads + threadIdx.x; i < a.length; i += kThreads * team->size) {
      const int64_t id = a.tokens[row * a.length + i];
      if (id < 0 || id >= static_cast<int64_t>(vocabulary)) continue;
      atomicOr(counts + id, 1u);
      if (static_cast<int64_t>(i) >= prompt) atomicAdd(counts + id, 2u);
    }
    team->Sync();
  }
  uint64_t most = 0;
  for (size_t i = team->begin + threadIdx.x; i < team->end; i += kThreads) {
    const float l = ToFloat(logits[i]);
    const uint32_t key = Key(penalties ? Penalized(l, __ldcg(counts + i), controls) : l);
    m.keys[i] = key;
    const uint64_t v = static_cast<uint64_t>(key) << 32 | (kAll - static_cast<uint32_t>(i));
    most = v > most ? v : most;
  }
  most = team->Most(most);
  const uint32_t best = static_cast<uint32_t>(most >> 32);
  int64_t id = static_cast<int64_t>(kAll - static_cast<uint32_t>(most));
  const float t = controls[0], first = __fdiv_rn(Unkey(best), t);
  const bool known = Valid(controls) && best >= kLeastFinite && best <= kMostFinite;
  if (!known || t == 0 || !(fabsf(first) <= 3.402823466e38f)) {
    if (team->rank == 0 && threadIdx.x == 0) a.ids[row] = known && t == 0 ? id : -1;
    return;
  }
  uint32_t least = 0;
  const float k = controls[1];
  if (k >= 1 && k < static_cast<float>(vocabulary)) {
    least = team->Select(m.keys, nullptr, static_cast<uint64_t>(k)).key;
  }
  uint64_t total = 0;
  for (size_t i = team->begin + threadIdx.x; i < team->end; i += kThreads) {
    const uint32_t key = m.keys[i];
    uint64_t w = 0;
    if (key >= least) w = Weight(__dsub_rn(__fdiv_rn(Unkey(key), t), first));
    m.weights[i] = w;
    total += w;
  }
  Drawn d;
  const float p = controls[2];
  if (p > 0 && p < 1) {
    total = team->Sum(total);
    const Selected last =
        team->Select(m.keys, m.weights, static_cast<uint64_t>(ceil(__dmul_rn(p, __ull2double_rn(total)))));
    d.cut = last.key;
    d.tie_weight = Weight(__dsub_rn(__fdiv_rn(Unkey(last.key), t), first));
    if (d.tie_weight > 0) d.ties = (last.left + d.tie_weight - 1) / d.tie_weight;
  }
  const uint64_t least_weight = static_cast<uint64_t>(ceil(__dmul_rn(controls[3], 0x1p40)));
  if (least_weight > 1) d.least = least_weight;
  if (d.tie_weight < d.least) d.ties = 0;
  __syncthreads();
  const size_t segment = Padded(DivideUp(vocabulary, kSegments));
  const int lane = threadIdx.x % 32;
  team->Sync();  // other blocks wrote keys and weights of the segments
  for (int g = team->rank * kWarps + threadIdx.x / 32; g < kSegments; g += kWarps * team->size) {
    uint64_t sum = 0;
    uint32_t ties = 0;
    const size_t end = (g + 1) * segment < vocabulary ? (g + 1) * segment : vocabulary;
    for (size_t i = g * segment + lane; i < end; i += 32) {
      const uint32_t key = __ldcg(&m.keys[i]);
      const uint64_t w = __ldcg(&m.weights[i]);
      if (key > d.cut && w >= d.least) sum += w;
      ties += key == d.cut ? 1 : 0;
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
    ties = __reduce_add_sync(kAll, ties);
    if (lane == 0) {
      m.sums[g] = sum;
      m.ties[g] = ties;
    }
  }
  team->Sync();
  if (team->rank == 0 && threadIdx.x < 32) {
    id = Draw(m, d, a.random[row], vocabulary, segment);
    if (threadIdx.x == 0) a.ids[row] = id;
  }
}

// Sample has teams of blocks, each of which takes the next row.
//
// A row reads its logits once and its keys and weights up to nine times, from the L2 cache.
template <class T>
__global__ __launch_bounds__(kThreads, 1) void Sample(const __grid_constant__ MojoSampleArgs a, int size) {
  __shared__ Shared shared;
  WaitForPrevious();
  LetNextStart();
  const size_t worker = blockIdx.x / size, workers = gridDim.x / size;
  Team team{&shared, size, static_cast<int>(blockIdx.x % size)};
  const size_t share = DivideUp(a.vocabulary, size);
  team.begin = team.rank * share < a.vocabulary ? team.rank * share : a.vocabulary;
  team.end = team.begin + share < a.vocabulary ? team.begin + share : a.vocabulary;
  char* scratch = static_cast<char*>(a.scratch) + worker * RowBytes(a.vocabulary);
  Memory m;
  m.weights = reinterpret_cast<uint64_t*>(scratch);
  m.sums = m.weights + Padded(a.vocabulary);
  m.ties = m.sums + kSegments;
  m.keys = reinterpret_cast<uint32_t*>(m.ties + kSegments);
  for (size_t row = worker; row < a.rows; row += workers) {
    SampleRow<T>(a, &team, m, row);
    team.Sync();  // the memory is used again
  }
}

// Blocks is the number of blocks of a row.
int Blocks(const MojoSampleArgs& a) {
  if (TheDevice().capability < 90 || a.vocabulary < 8 * kThreads) return 1;
  return a.rows <= 16 ? 8 : a.rows <= 32 ? 4 : a.rows < 64 ? 2 : 1;
}

size_t Workers(const MojoSampleArgs& a) { return a.rows < kWorkers ? a.rows : kWorkers; }

}  // namespace
}  // namespace mojo

size_t MojoSampleScratch(const MojoSampleArgs* args) { return mojo::Workers(*args) * mojo::RowBytes(args->vocabulary); }

cudaError_t MojoCudaSample(const MojoSampleArgs* args, cudaStream_t stream) {
  if (args->rows == 0) return cudaSuccess;
  const int size = mojo::Blocks(*args);
  return mojo::OfType(args->logits_type, [&](auto zero) {
    return mojo::LaunchClusters(mojo::Sample<decltype(zero)>, size, static_cast<unsigned>(mojo::Workers(*args) * size),
                                mojo::kThreads, 0, stream, *args, size);
  });
}
