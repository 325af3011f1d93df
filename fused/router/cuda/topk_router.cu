// TopKRouter, in one launch.
//
// Up to 512 experts, 32 choices and 32 groups: a warp for each row, its scores in registers. Register i of a
// lane belongs to expert 32 * i + lane. The choice goes by integers that are ordered as the scores are, so
// that an expert is taken once whatever its score: infinities and NaN (the greatest, as in PyTorch) have
// their place. Anything larger: a block for each row, in scratch memory.
#include "cuda/keys.cuh"

namespace mojo {
namespace {

constexpr int kWarps = 4;
constexpr int kMostInWarp = 512;
constexpr uint32_t kTaken = 0;  // less than any number's key

__device__ __forceinline__ float WarpMost(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(kAll, v, step));
  return v;
}

__device__ __noinline__ float SqrtSoftplus(float v) { return sqrtf(v > 20.0f ? v : log1pf(expf(v))); }

// ScoreAlone is the score of a logit that does not depend on others.
__device__ __forceinline__ float ScoreAlone(Score score, float v) {
  return score == Score::kSigmoid ? __frcp_rn(1.0f + expf(-v)) : SqrtSoftplus(v);
}

// Top2 are the two greatest numbers seen.
struct Top2 {
  float first = -INFINITY, second = -INFINITY;

  __device__ __forceinline__ void Add(float v) {
    second = fmaxf(second, fminf(first, v));
    first = fmaxf(first, v);
  }
  __device__ __forceinline__ float Score(bool sum) const { return sum ? first + second : first; }
};

// SoftmaxInWarp makes scores of a row's logits; those beyond the experts are -infinity.
template <int kOwn>
__device__ __forceinline__ void SoftmaxInWarp(float (&score)[kOwn]) {
  float most = score[0], sum = 0;
#pragma unroll
  for (int i = 1; i < kOwn; ++i) most = fmaxf(most, score[i]);
  most = WarpMost(most);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) sum += score[i] = expf(score[i] - most);
  sum = WarpSum(sum);
  // The quotient as a division rounds it, in three instructions: sum is 1 to 512, or NaN.
  const float inverse = __frcp_rn(sum);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const float quotient = score[i] * inverse;
    score[i] = fmaf(fmaf(-quotient, sum, score[i]), inverse, quotient);
  }
}

// KeepGroups makes the keys of the groups' choice, in which experts of groups that are left out have the excluded
// score. Lanes of a group share its experts; choice is memory for a number of each.
template <int kOwn>
__device__ __forceinline__ void KeepGroups(const MojoTopKRouterArgs& a, const float (&biased)[kOwn], int lane,
                                           float* choice, uint32_t (&key)[kOwn]) {
  const int experts = static_cast<int>(a.experts), groups = static_cast<int>(a.groups), size = experts / groups;
  int share = 1;
  while (2 * share * groups <= 32) share *= 2;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (32 * i + lane < experts) choice[32 * i + lane] = biased[i];
  }
  __syncwarp();
  const int group = lane / share;
  Top2 best;
  if (group < groups) {
    for (int i = lane % share; i < size; i += share) best.Add(choice[group * size + i]);
  }
#pragma unroll 1
  for (int step = share / 2; step > 0; step /= 2) {
    const float first = __shfl_xor_sync(kAll, best.first, step), second = __shfl_xor_sync(kAll, best.second, step);
    best.Add(first);
    best.Add(second);
  }
  uint32_t kept = 0, mine = group < groups && lane % share == 0 ? Key(best.Score(a.top2_sum != 0)) : kTaken;
  const int group_top_k = static_cast<int>(a.group_top_k);
#pragma unroll 1
  for (int g = 0; g < group_top_k; ++g) {
    const uint32_t most = __reduce_max_sync(kAll, mine);
    const int winner = __ffs(__ballot_sync(kAll, mine == most)) - 1;
    kept |= 1u << winner / share;
    if (lane == winner) mine = kTaken;
  }
  const float per_size = 1.0f / static_cast<float>(size);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int expert = 32 * i + lane;
    // expert / size: half an expert far exceeds any rounding error.
    const int its = static_cast<int>((static_cast<float>(expert) + 0.5f) * per_size);
    key[i] = expert < experts ? Key((kept >> its & 1) != 0 ? biased[i] : a.excluded_score) : kTaken;
  }
  __syncwarp();
}

// Route handles a row in each warp. kPlain: softmax, no bias, no groups, as in most models. A row reads its logits and
// writes 12 bytes a choice; the time is a launch, the load of the code (on the first call), and top_k rounds of two
// warp reductions.
//
// Registers: 48 for 512 experts, 32 for 256 and fewer; not kPlain 80, 48 for 256, and 32. Shared memory: 4 bytes an
// expert and warp, not kPlain.
template <class T, int kOwn, bool kPlain>
__global__ __launch_bounds__(32 * kWarps) void Route(const __grid_constant__ MojoTopKRouterArgs a) {
  extern __shared__ float shared[];  // [kWarps][experts]
  WaitForPrevious();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const size_t row = static_cast<size_t>(blockIdx.x) * kWarps + warp;
  if (row >= a.rows) return;
  const int experts = static_cast<int>(a.experts), top_k = static_cast<int>(a.top_k);
  const T* logits = static_cast<const T*>(a.logits) + row * a.experts;
  float* scores = shared + warp * experts;
  float score[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) score[i] = 32 * i + lane < experts ? ToFloat(logits[32 * i + lane]) : -INFINITY;
  uint32_t key[kOwn];
  if constexpr (kPlain) {
    LetNextStart();
    if (!a.top_k_first) SoftmaxInWarp(score);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) key[i] = 32 * i + lane < experts ? Key(score[i]) : kTaken;
  } else {
    float biased[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      biased[i] = a.bias != nullptr && 32 * i + lane < experts ? Number(a.bias, 32 * i + lane, a.bias_type) : 0;
    }
    LetNextStart();
    if (!a.top_k_first) {
      if (a.score == Score::kSoftmax) {
        SoftmaxInWarp(score);
      } else {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) score[i] = ScoreAlone(a.score, score[i]);
      }
    }
    // Without a bias the sum equals the score, except for the sign of zero, which keys drop.
#pragma unroll
    for (int i = 0; i < kOwn; ++i) biased[i] += score[i];
    if (a.groups > 1) {
      KeepGroups(a, biased, lane, scores, key);
    } else {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) key[i] = 32 * i + lane < experts ? Key(biased[i]) : kTaken;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (32 * i + lane < experts) scores[32 * i + lane] = score[i];
    }
  }
  // Lane j keeps the expert chosen in round j.
  uint32_t chosen_key = kTaken;
  int chosen_id = 0;
#pragma unroll 1
  for (int j = 0; j < top_k; ++j) {
    uint32_t best = key[0];
#pragma unroll
    for (int i = 1; i < kOwn; ++i) best = max(best, key[i]);
    const uint32_t most = __reduce_max_sync(kAll, best);
    uint32_t mine = kAll;
#pragma unroll
    for (int i = kOwn - 1; i >= 0; --i) mine = key[i] == most ? 32u * i + lane : mine;
    const uint32_t id = __reduce_min_sync(kAll, mine);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) key[i] = 32u * i + lane == id ? kTaken : key[i];
    if (lane == j) {
      chosen_key = most;
      chosen_id = static_cast<int>(id);
    }
  }
  float chosen;
  if constexpr (kPlain) {
    chosen = Unkey(chosen_key);
  } else {
    __syncwarp();
    chosen = scores[chosen_id];
  }
  if (lane >= top_k) chosen = -INFINITY;
  if (a.top_k_first) {
    if (kPlain || a.score == Score::kSoftmax) {
      chosen = expf(chosen - WarpMost(chosen));  // 0 in other lanes
      chosen /= WarpSum(lane < top_k ? chosen : 0);
    } else {
      chosen = ScoreAlone(a.score, chosen);
    }
  }
  if (a.renormalize) chosen /= WarpSum(lane < top_k ? chosen : 0) + a.epsilon;
  if (lane >= top_k) return;
  a.weights[row * top_k + lane] = chosen * a.scale;
  a.ids[row * top_k + lane] = chosen_id;
}

constexpr int kThreads = 256;

// BlockMost is the greatest number of a block.
__device__ uint64_t BlockMost(uint64_t v, uint64_t* shared) {
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(kAll, v, step);
    v = other > v ? other : v;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  for (int w = 0; w < kThreads / 32; ++w) v = shared[w] > v ? shared[w] : v;
  return v;
}

// Take finds the greatest of n keys, or the first of equal ones, and takes it.
__device__ size_t Take(uint32_t* keys, size_t n, uint64_t* shared) {
  uint64_t best = 0;
  for (size_t i = threadIdx.x; i < n; i += kThreads) {
    const uint64_t v = static_cast<uint64_t>(keys[i]) << 32 | (kAll - static_cast<uint32_t>(i));
    best = v > best ? v : best;
  }
  const size_t at = kAll - static_cast<uint32_t>(BlockMost(best, shared));
  __syncthreads();
  if (threadIdx.x == 0) keys[at] = kTaken;
  __syncthreads();
  return at;
}

// SoftmaxOf makes scores of n logits, in place.
__device__ void SoftmaxOf(float* v, size_t n, uint64_t* most_shared, float* sum_shared) {
  uint64_t most = 0;
  for (size_t i = threadIdx.x; i < n; i += kThreads)
    most = max(most, static_cast<uint64_t>(Key(v[i])) << 32 | __float_as_uint(v[i]));
  const float greatest = __uint_as_float(static_cast<uint32_t>(BlockMost(most, most_shared)));
  float sum = 0;
  for (size_t i = threadIdx.x; i < n; i += kThreads) sum += v[i] = expf(v[i] - greatest);
  sum = BlockSum<kThreads>(sum, sum_shared);
  for (size_t i = threadIdx.x; i < n; i += kThreads) v[i] /= sum;
  __syncthreads();
}

// RouteAny is the slow kernel. Each row has scores, choices and keys in scratch memory.
__global__ __launch_bounds__(kThreads, 1) void RouteAny(const __grid_constant__ MojoTopKRouterArgs a) {
  __shared__ uint64_t shared[kThreads / 32];
  __shared__ __align__(16) float sums[32];
  WaitForPrevious();
  LetNextStart();
  const size_t n = a.experts, size = n / a.groups;
  float* score = static_cast<float*>(a.scratch) + blockIdx.x * 3 * n;
  float* choice = score + n;
  uint32_t* keys = reinterpret_cast<uint32_t*>(choice + n);
  for (size_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    float* weights = a.weights + row * a.top_k;
    for (size_t i = threadIdx.x; i < n; i += kThreads) {
      score[i] = Number(a.logits, row * n + i, a.logits_type);
      if (!a.top_k_first && a.score != Score::kSoftmax) score[i] = ScoreAlone(a.score, score[i]);
    }
    __syncthreads();
    if (!a.top_k_first && a.score == Score::kSoftmax) SoftmaxOf(score, n, shared, sums);
    for (size_t i = threadIdx.x; i < n; i += kThreads) {
      choice[i] = a.bias != nullptr ? score[i] + Number(a.bias, i, a.bias_type) : score[i];
    }
    __syncthreads();
    if (a.groups > 1) {
      for (size_t g = threadIdx.x; g < a.groups; g += kThreads) {
        Top2 best;
        for (size_t i = g * size; i < (g + 1) * size; ++i) best.Add(choice[i]);
        keys[g] = Key(best.Score(a.top2_sum != 0));
      }
      __syncthreads();
      for (size_t g = 0; g < a.group_top_k; ++g) Take(keys, a.groups, shared);
      for (size_t i = threadIdx.x; i < n; i += kThreads) {
        if (keys[i / size] != kTaken) choice[i] = a.excluded_score;
      }
      __syncthreads();
    }
    for (size_t i = threadIdx.x; i < n; i += kThreads) keys[i] = Key(choice[i]);
    __syncthreads();
    for (size_t j = 0; j < a.top_k; ++j) {
      const size_t id = Take(keys, n, shared);
      if (threadIdx.x != 0) continue;
      a.ids[row * a.top_k + j] = static_cast<int64_t>(id);
      weights[j] = score[id];
    }
    __syncthreads();
    if (a.top_k_first) {
      if (a.score == Score::kSoftmax) {
        SoftmaxOf(weights, a.top_k, shared, sums);
      } else {
        for (size_t j = threadIdx.x; j < a.top_k; j += kThreads) weights[j] = ScoreAlone(a.score, weights[j]);
      }
    }
    float sum = 0;
    for (size_t j = threadIdx.x; j < a.top_k; j += kThreads) sum += weights[j];
    sum = BlockSum<kThreads>(sum, sums);
    for (size_t j = threadIdx.x; j < a.top_k; j += kThreads) {
      weights[j] = (a.renormalize ? weights[j] / (sum + a.epsilon) : weights[j]) * a.scale;
    }
    __syncthreads();
  }
}

bool FitsWarp(const MojoTopKRouterArgs& a) { return a.experts <= kMostInWarp && a.top_k <= 32 && a.groups <= 32; }

// Rows that RouteAny has memory for at once.
size_t RowsAtOnce(const MojoTopKRouterArgs& a) { return a.rows < 256 ? a.rows : 256; }

template <class T, bool kPlain>
cudaError_t Run(const MojoTopKRouterArgs& a, cudaStream_t stream) {
  const auto kernel = a.experts <= 32    ? Route<T, 1, kPlain>
                      : a.experts <= 64  ? Route<T, 2, kPlain>
                      : a.experts <= 128 ? Route<T, 4, kPlain>
                      : a.experts <= 256 ? Route<T, 8, kPlain>
                                         : Route<T, 16, kPlain>;
  const size_t shared = kPlain ? 0 : kWarps * a.experts * sizeof(float);
  return Launch(kernel, static_cast<unsigned>(DivideUp(a.rows, kWarps)), 32 * kWarps, shared, stream, a);
}

template <class T>
cudaError_t RunType(const MojoTopKRouterArgs& a, cudaStream_t stream) {
  const bool plain = a.score == Score::kSoftmax && a.bias == nullptr && a.groups <= 1;
  return plain ? Run<T, true>(a, stream) : Run<T, false>(a, stream);
}

}  // namespace
}  // namespace mojo

size_t MojoTopKRouterScratch(const MojoTopKRouterArgs* args) {
  return mojo::FitsWarp(*args) ? 0 : mojo::RowsAtOnce(*args) * 3 * args->experts * sizeof(float);
}

cudaError_t MojoCudaTopKRouter(const MojoTopKRouterArgs* args, cudaStream_t stream) {
  const MojoTopKRouterArgs& a = *args;
  if (a.rows == 0 || a.top_k == 0 || a.experts == 0) return cudaSuccess;
  if (!mojo::FitsWarp(a)) {
    return mojo::Launch(mojo::RouteAny, static_cast<unsigned>(mojo::RowsAtOnce(a)), mojo::kThreads, 0, stream, a);
  }
  switch (a.logits_type) {
    case kMojoFloat16: return mojo::RunType<mojo::Half>(a, stream);
    case kMojoBFloat16: return mojo::RunType<mojo::BFloat>(a, stream);
    default: return mojo::RunType<float>(a, stream);
  }
}
