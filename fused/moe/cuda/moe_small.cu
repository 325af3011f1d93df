// MoE of a few tokens: the time is the one read of the chosen experts.
//
// Two launches. Weights go from memory directly into an operand of mma.sync. The 16 bytes of a row that a lane loads
// need not be neighbors for the instruction, as long as both operands have the same order. The other operand is up to 8
// tokens; tokens that did not choose the expert are 0. It needs no plan: each block finds its expert's tokens among the
// few ids. The second launch begins while the first ends.
//
// Between the products, an activation times its token's weight is two 16-bit numbers (the rounded number and the
// rounding error), so that rounding costs no visible accuracy. Pairs of the two kinds alternate, as the instruction has
// them in a token's two rows.
//
// The floor is 6 * hidden * inner bytes for each chosen expert: on an H200 (4.6 TB/s read) 16 us for one token of 8
// experts of 2048 x 768, 43 us for 4 of 2880 x 2880. Each warp has 2 KB in flight, and a multiprocessor up to 80 and 64
// KB, of which some 30 KB would be enough at 0.8 us of latency.
#include "cuda/cluster.cuh"
#include "cuda/mma.cuh"
#include "moe/cuda/moe.cuh"

namespace mojo {
namespace {

constexpr int kMostTokens = 8;  // more go through tiles, which are faster from there on
constexpr int kMostChoices = 128;
constexpr int kMostSlots = 32;
constexpr int kFirstWarps = 40;  // of the first product that run at once on a multiprocessor
constexpr int kWarps = 8;        // of a block of the second product
constexpr int kThreads = 32 * kWarps;
constexpr int kUnit = 64;  // numbers of a row that a quad of lanes loads in a step
constexpr int kMostSlices = 8;
constexpr int kSums = 16 * kMostTokens;  // of a block of the second product

// Step is the part of a unit of 16 rows that a lane holds: 8 numbers of each half of the unit, of rows g and g + 8. A
// warp has one step in flight, 2 KB. More steps would take the registers of other warps, which load more.
struct Step {
  uint4 row[2][2];  // [half][row]
};

// LoadNow loads in program order, before the next loads, so that nothing waits in between.
__device__ __forceinline__ uint4 LoadNow(const void* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// HasHalf reports whether a lane's 8 numbers of a half exist if a row has left numbers, fewer than a unit.
__device__ __forceinline__ bool HasHalf(int half, int left) {
  return 32 * half + static_cast<int>(threadIdx.x) % 4 * 8 < left;
}

// LoadStep loads a lane's part of a unit: from row0 and row1 on, of rows that have left numbers there.
template <class T>
__device__ __forceinline__ void LoadStep(Step* step, const T* row0, const T* row1, int left) {
  const uint4 zero = make_uint4(0, 0, 0, 0);
  if (left >= kUnit) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      step->row[half][0] = LoadWeights(row0 + 32 * half);
      step->row[half][1] = LoadWeights(row1 + 32 * half);
    }
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    step->row[half][0] = HasHalf(half, left) ? LoadWeights(row0 + 32 * half) : zero;
    step->row[half][1] = HasHalf(half, left) ? LoadWeights(row1 + 32 * half) : zero;
  }
}

// LoadHalves loads 8 numbers of each half's other operand; the halves are `apart` from each other.
template <class T>
__device__ __forceinline__ void LoadHalves(uint4 (&halves)[2], const T* p, int apart, int left) {
  if (left >= kUnit) {
#pragma unroll
    for (int half = 0; half < 2; ++half) halves[half] = LoadNow(p + apart * half);
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    halves[half] = HasHalf(half, left) ? LoadNow(p + apart * half) : make_uint4(0, 0, 0, 0);
  }
}

// MultiplyHalf adds the products of half a unit with a lane's 8 numbers of its column.
template <class T>
__device__ __forceinline__ void MultiplyHalf(float (&sum)[4], const uint4& row0, const uint4& row1,
                                             const uint4& column) {
  const uint32_t first[4] = {row0.x, row1.x, row0.y, row1.y};
  const uint32_t second[4] = {row0.z, row1.z, row0.w, row1.w};
  Multiply<T>(sum, first, column.x, column.y);
  Multiply<T>(sum, second, column.z, column.w);
}

// Chosen are the choices that go to one expert, as bits.
struct Chosen {
  uint32_t bits[kMostChoices / 32 + 1];

  // Find is called by the whole block; the caller's next barrier ends it.
  __device__ __forceinline__ void Find(const MojoMoEArgs& a, int expert) {
    for (int choice = threadIdx.x; choice < kMostChoices; choice += blockDim.x) {
      const bool is = choice < static_cast<int>(a.tokens * a.top_k) && a.ids[choice] == expert;
      const uint32_t ballot = __ballot_sync(0xffffffffu, is);
      if (choice % 32 == 0) bits[choice / 32] = ballot;
    }
    if (threadIdx.x == 0) bits[kMostChoices / 32] = 0;
  }
  // First is the first of the choices.
  __device__ __forceinline__ int First() const {
    int word = 0;
    while (bits[word] == 0) ++word;
    return 32 * word + __ffs(bits[word]) - 1;
  }
  // OfToken is the bit mask of one token's choices.
  __device__ __forceinline__ uint32_t OfToken(int token, int top_k) const {
    const int at = token * top_k;
    const uint32_t from = __funnelshift_r(bits[at / 32], bits[at / 32 + 1], at % 32);
    return top_k == 32 ? from : from & ((1u << top_k) - 1);
  }
};

// SmallGateUp: a block of 3 to 16 warps computes 8 pairs (16 rows without gates) of the expert of choice blockIdx.y,
// if that is the expert's first choice, for all tokens. Warps take turns along the rows. Moves the rows once:
// 32 * hidden bytes a block. Registers: 48, 56 of 16 warps; shared memory 8 KB.
template <class T, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, kFirstWarps / kWarps)
    SmallGateUp(const __grid_constant__ MojoMoEArgs a, T* activated) {
  __shared__ Chosen chosen;
  __shared__ float sums[kWarps][4][32];
  WaitForPrevious();
  LetNextStart();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, choice = blockIdx.y;
  const int expert = ChosenExpert(a, choice);
  if (expert < 0) return;
  chosen.Find(a, expert);
  __syncthreads();
  if (chosen.First() != choice) return;
  const int hidden = static_cast<int>(a.hidden), inner = static_cast<int>(a.inner), top_k = static_cast<int>(a.top_k);
  const T* matrix = static_cast<const T*>(a.gate_up) + static_cast<size_t>(expert) * Packed(a) * a.hidden;
  const bool gated = a.packing != Packing::kNone;
  const T *row0, *row1;
  if (gated) {
    const int pair = blockIdx.x * 8 + lane / 4;
    row0 = matrix + GateRow(a, pair) * a.hidden;
    row1 = matrix + UpRow(a, pair) * a.hidden;
  } else {
    const int row = blockIdx.x * 16 + lane / 4;
    row0 = matrix + row * a.hidden;
    row1 = matrix + min(row + 8, inner - 1) * a.hidden;
  }
  const int of = lane / 4;
  const bool takes = of < static_cast<int>(a.tokens) && chosen.OfToken(of, top_k) != 0;
  const int at = warp * kUnit + lane % 4 * 8;
  const T* column = static_cast<const T*>(a.x) + of * a.hidden + at;
  row0 += at;
  row1 += at;
  float sum[4] = {};
  uint4 x[2] = {};
#pragma unroll 1
  for (int left = hidden - warp * kUnit; left > 0; left -= kWarps * kUnit) {
    Step step;
    LoadStep(&step, row0, row1, left);
    if (takes) LoadHalves(x, column, 32, left);
#pragma unroll
    for (int half = 0; half < 2; ++half) MultiplyHalf<T>(sum, step.row[half][0], step.row[half][1], x[half]);
    row0 += kWarps * kUnit;
    row1 += kWarps * kUnit;
    column += kWarps * kUnit;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[warp][i][lane] = sum[i];
  __syncthreads();
  // A thread for each pair and token.
  if (threadIdx.x >= 64) return;
  const int token = threadIdx.x / 8, row = threadIdx.x % 8;
  if (token >= static_cast<int>(a.tokens)) return;
  const uint32_t slots = chosen.OfToken(token, top_k);
  if (slots == 0) return;
  float weight = 0;
  for (uint32_t left = slots; left != 0; left &= left - 1) {
    weight += Number(a.weights, token * top_k + __ffs(left) - 1, a.weights_type);
  }
  T* const out = activated + static_cast<size_t>(token * top_k + __ffs(slots) - 1) * 2 * a.inner;
  const int from = row * 4 + token / 2, i0 = token % 2;
  float v[2] = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    v[0] += sums[w][i0][from];
    v[1] += sums[w][i0 + 2][from];
  }
  const size_t bias = static_cast<size_t>(expert) * Packed(a);
  const int count = gated ? 1 : 2;
#pragma unroll 1
  for (int n = 0; n < count; ++n) {
    const int i = gated ? blockIdx.x * 8 + row : blockIdx.x * 16 + n * 8 + row;
    if (i >= inner) return;
    float gate = n == 0 ? v[0] : v[1], up = v[1];
    if (a.gate_up_bias != nullptr) {
      gate += Number(a.gate_up_bias, bias + GateRow(a, i), a.expert_type);
      if (gated) up += Number(a.gate_up_bias, bias + UpRow(a, i), a.expert_type);
    }
    const float value = Activated(a, gate, up) * weight;
    const T rounded = FromFloat<T>(Bounded<T>(value));
    const float rest = value - ToFloat(rounded);
    T* const to = out + i / 2 * 4 + i % 2;
    to[0] = rounded;
    to[2] = FromFloat<T>(isfinite(rest) ? Bounded<T>(rest) : 0.0f);
  }
}

// Experts are the chosen experts, in the order of their first choices.
struct Experts {
  int ids[kMostChoices];
  int warp_count[kMostChoices / 32];
  int expert[kMostChoices];
  short place[kMostChoices];                // of the expert whose first choice it is
  short choice[kMostChoices][kMostTokens];  // [place][token]: the token's first choice of it, or -1

  // The whole block calls Find, which returns the number of experts.
  __device__ __forceinline__ int Find(const MojoMoEArgs& a) {
    const int choices = static_cast<int>(a.tokens * a.top_k), top_k = static_cast<int>(a.top_k), i = threadIdx.x;
    for (int at = i; at < choices * kMostTokens; at += blockDim.x) choice[at / kMostTokens][at % kMostTokens] = -1;
    if (i < kMostChoices) {
      const int64_t id = i < choices ? __ldcg(reinterpret_cast<const long long*>(a.ids) + i) : -1;
      ids[i] = static_cast<uint64_t>(id) < a.experts ? static_cast<int>(id) : -1;
    }
    __syncthreads();
    int first = i;
    bool is_first = false;
    if (i < kMostChoices) {
      if (i < choices && ids[i] >= 0) {
        first = 0;
        while (ids[first] != ids[i]) ++first;
        is_first = first == i;
      }
      const uint32_t ballot = __ballot_sync(0xffffffffu, is_first);
      if (i % 32 == 0) warp_count[i / 32] = __popc(ballot);
      if (is_first) place[i] = static_cast<short>(__popc(ballot & ((1u << i % 32) - 1)));
    }
    __syncthreads();
    if (is_first) {
      int at = place[i];
      for (int w = 0; w < i / 32; ++w) at += warp_count[w];
      place[i] = static_cast<short>(at);
      expert[at] = ids[i];
    }
    __syncthreads();
    if (i < choices && ids[i] >= 0) {
      const int token = i / top_k;
      bool again = false;
      for (int j = token * top_k; j < i; ++j) again = again || ids[j] == ids[i];
      if (!again) choice[place[first]][token] = static_cast<short>(i);
    }
    __syncthreads();
    int count = 0;
    for (int w = 0; w < kMostChoices / 32; ++w) count += warp_count[w];
    return count;
  }
};

// SmallDown: the blocks of a cluster compute 16 outputs of all tokens. Their warps share the columns of all chosen
// experts, and the first block adds up the sums. Moves 32 * inner bytes for each expert.
//
// Here the weights are the columns and the tokens the rows, rounded numbers first, so the results of the first launch
// load directly as an operand. The first weights are in flight before that launch ends.
//
// Warps take turns along long rows (in_turns), so that memory is read in long pieces: the same bytes take 8 % less time
// than in a stretch for each warp. With short rows, stretches change the expert less often.
// Registers: 64, shared memory 12 KB.
template <class T>
__global__ __launch_bounds__(kThreads, 4) void SmallDown(const __grid_constant__ MojoMoEArgs a, const T* activated,
                                                         int slices, bool in_turns) {
  __shared__ Experts experts;
  __shared__ float sums[kWarps][4][32];
  // The first launch waited before it let this one start, so data from before it can be read: ids and weights, but not
  // yet the results of the first launch.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slice = blockIdx.x;
  const int hidden = static_cast<int>(a.hidden), inner = static_cast<int>(a.inner), top_k = static_cast<int>(a.top_k);
  const int units = (inner + kUnit - 1) / kUnit, all_units = experts.Find(a) * units;
  const int shares = slices * kWarps, share = slice * kWarps + warp;
  const int stride = in_turns ? shares : 1;
  const int begin = in_turns ? share : static_cast<int>(static_cast<int64_t>(all_units) * share / shares);
  int steps = in_turns ? (all_units - share + shares - 1) / shares
                       : static_cast<int>(static_cast<int64_t>(all_units) * (share + 1) / shares) - begin;
  const int row = min(static_cast<int>(blockIdx.y) * 16 + lane / 4, hidden - 1);
  const int to_row1 = (min(row + 8, hidden - 1) - row) * inner;
  int place = 0, depth = 0;
  bool takes = false;  // the lane's token chose the expert
  const T *row0 = nullptr, *in = nullptr;
  const auto find = [&] {
    const size_t rows = static_cast<size_t>(experts.expert[place]) * a.hidden, at = depth * kUnit + lane % 4 * 8;
    const int choice = experts.choice[place][lane / 4];
    row0 = static_cast<const T*>(a.down) + (rows + row) * a.inner + at;
    takes = choice >= 0;
    in = activated + (static_cast<size_t>(max(choice, 0)) * a.inner + at) * 2;
  };
  Step step;
  if (steps > 0) {
    place = begin / units;
    depth = begin % units;
    find();
    LoadStep(&step, row0, row0 + to_row1, inner - depth * kUnit);
  }
  WaitForPrevious();
  LetNextStart();
  float sum[2][4] = {}, all[4] = {};
  uint4 first[2] = {}, second[2] = {};
#pragma unroll 1
  while (steps > 0) {
    const int left = inner - depth * kUnit;
    if (takes) {
      LoadHalves(first, in, kUnit, left);
      LoadHalves(second, in + 8, kUnit, left);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t tokens[2][4] = {{first[half].x, first[half].y, first[half].z, first[half].w},
                                     {second[half].x, second[half].y, second[half].z, second[half].w}};
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint4& weights = step.row[half][r];
        Multiply<T>(sum[r], tokens[0], weights.x, weights.y);
        Multiply<T>(sum[r], tokens[1], weights.z, weights.w);
      }
    }
    row0 += stride * kUnit;
    in += stride * kUnit * 2;
    depth += stride;
    --steps;
    if (depth >= units || steps == 0) {
      // Only tokens that chose the expert take its sums: 0 times a weight that is not finite is not 0.
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (takes) all[i] += sum[i / 2][i % 2] + sum[i / 2][i % 2 + 2];
        sum[i / 2][i % 2] = sum[i / 2][i % 2 + 2] = 0;
      }
      for (; depth >= units; depth -= units) ++place;
      if (steps > 0) find();
      first[0] = first[1] = second[0] = second[1] = make_uint4(0, 0, 0, 0);
    }
    if (steps > 0) LoadStep(&step, row0, row0 + to_row1, inner - depth * kUnit);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[warp][i][lane] = all[i];
  __syncthreads();
  // A thread for each output and token: 16 outputs of 8 tokens.
  const int n = threadIdx.x, token = n / 16, output = n % 16;
  const int from = token * 4 + output % 8 / 2, i = output % 2 + (output < 8 ? 0 : 2);
  float total = 0;
  if (n < kSums) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += sums[w][i][from];
  }
#if __CUDA_ARCH__ >= 900
  if (slices > 1) {
    __shared__ float parts[kMostSlices][kSums];
    ReleaseToCluster();
    WaitForCluster();
    if (n < kSums) {
      asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(InBlock(&parts[slice][n], 0)), "f"(total) : "memory");
    }
    ReleaseToCluster();
    WaitForCluster();
    if (slice != 0) return;
    if (n < kSums) {
      for (int s = 1; s < slices; ++s) total += parts[s][n];
    }
  }
#endif
  const int h = blockIdx.y * 16 + output;
  if (n >= kSums || token >= static_cast<int>(a.tokens) || h >= hidden) return;
  if (a.down_bias != nullptr) {
    for (int j = 0; j < top_k; ++j) {
      const int expert = experts.ids[token * top_k + j];
      if (expert < 0) continue;
      total += Number(a.weights, token * top_k + j, a.weights_type) *
               Number(a.down_bias, static_cast<size_t>(expert) * a.hidden + h, a.expert_type);
    }
  }
  static_cast<T*>(a.y)[token * a.hidden + h] = FromFloat<T>(total);
}

// Slices is the number of blocks that share each row of the second product: as many as run at once, four on a
// multiprocessor, as long as every warp has a few steps. Clusters of four and more leave some of that room empty.
int Slices(const MojoMoEArgs& a) {
  if (!TheDevice().waits) return 1;  // the kernel's code has no clusters
  const size_t rows = DivideUp(a.hidden, 16), steps = a.top_k * DivideUp(a.inner, kUnit) / kWarps;
  const size_t multiprocessors = static_cast<size_t>(TheDevice().multiprocessors);
  const auto fits = [&](size_t slices) {
    return steps >= 4 * slices && rows * slices <= (slices < 4 ? 16 : 15) * multiprocessors / 4;
  };
  size_t slices = 1;
  while (slices < kMostSlices && fits(slices + 1)) ++slices;
  return static_cast<int>(slices);
}

// FirstProduct launches it with as many warps a block as let all blocks run at once: a few remaining blocks would not
// fill the device. If there are too many blocks, it uses four warps, which makes the last turn short.
template <class T>
cudaError_t FirstProduct(const MojoMoEArgs& a, T* activated, cudaStream_t stream) {
  const dim3 pairs(static_cast<unsigned>(DivideUp(a.inner, a.packing != Packing::kNone ? 8 : 16)),
                   static_cast<unsigned>(a.tokens * a.top_k));
  const auto at_once = [&](int warps) {
    return size_t{pairs.x} * pairs.y <= static_cast<size_t>(kFirstWarps / warps * TheDevice().multiprocessors);
  };
  if (at_once(16)) return Launch(SmallGateUp<T, 16>, pairs, 32 * 16, 0, stream, a, activated);
  if (at_once(8)) return Launch(SmallGateUp<T, 8>, pairs, 32 * 8, 0, stream, a, activated);
  if (at_once(3) && !at_once(4)) return Launch(SmallGateUp<T, 3>, pairs, 32 * 3, 0, stream, a, activated);
  return Launch(SmallGateUp<T, 4>, pairs, 32 * 4, 0, stream, a, activated);
}

template <class T>
cudaError_t Run(const MojoMoEArgs& a, cudaStream_t stream) {
  T* activated = static_cast<T*>(a.scratch);
  if (cudaError_t e = FirstProduct(a, activated, stream)) return e;
  const int slices = Slices(a);
  const bool in_turns = DivideUp(a.inner, kUnit) >= static_cast<size_t>(slices * kWarps);
  const dim3 grid(slices, static_cast<unsigned>(DivideUp(a.hidden, 16)));
  return LaunchClusters(SmallDown<T>, slices, grid, kThreads, 0, stream, a, activated, slices, in_turns);
}

}  // namespace

bool SmallMoETakes(const MojoMoEArgs& a) {
  return WideLoads(a) && !a.gate_up_in_out && !a.down_in_out && a.tokens <= kMostTokens && a.top_k <= kMostSlots &&
         a.tokens * a.top_k <= kMostChoices && a.hidden <= (size_t{1} << 20) && a.inner <= (size_t{1} << 20);
}

size_t SmallMoEScratch(const MojoMoEArgs& a) { return a.tokens * a.top_k * 2 * a.inner * TypeSize(a.x_type); }

cudaError_t SmallMoE(const MojoMoEArgs& a, cudaStream_t stream) {
  return a.x_type == kMojoBFloat16 ? Run<BFloat>(a, stream) : Run<Half>(a, stream);
}

}  // namespace mojo
