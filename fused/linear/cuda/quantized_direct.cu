// Products of MXFP4 and e4m3 with a few rows of activations: the time is one read of the weights, 4.25 and 8 bits each.
//
// Weights go from memory into registers as operands of mma.sync. It needs no other launch: a block finds the choices
// of its expert among the few ids, and widens or rounds activations itself. It has 32 rows of weights and up to eight
// tokens; its warps share the columns. Weights of the second product are in flight before it waits for the first one.
#include "linear/cuda/quantized_product.cuh"

namespace mojo {
namespace {

constexpr size_t kMostChoices = 64;
// The most warps of a block, and of a multiprocessor at once: with 128 and 64 registers a thread, or 80 on compute
// capability 10.0, on which 64 would spill.
template <bool kEightBits>
constexpr int kMostWarps = kEightBits ? 16 : 8;
template <bool kEightBits>
#if __CUDA_ARCH__ >= 1000
constexpr int kWarps = kEightBits ? 16 : 24;
#else
constexpr int kWarps = kEightBits ? 16 : 32;
#endif
constexpr int kAhead = 3;              // steps of e2m1 that are in flight
constexpr int kRows = 2 * kPanelRows;  // of a block
constexpr int kSums = 8;               // of a lane

__device__ __forceinline__ uint32_t LoadWord(const void* p) {
  uint32_t v;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

// Taken is the share of a block: up to kFewTokens choices of an expert, or rows of x.
template <QuantizedKind kKind>
struct Taken {
  int expert = 0, count = 0;
  uint64_t choices = 0;  // the first of them is the block's own

  // count stays 0 if another block has the choice or its id is invalid.
  __device__ __forceinline__ explicit Taken(const QuantizedProduct& p) {
    if (kKind == kQuantizedLinear) {
      count = static_cast<int>(p.rows);
      return;
    }
    const int all = static_cast<int>(p.moe.tokens * p.moe.top_k), lane = threadIdx.x % 32;
    const int64_t id = p.moe.ids[blockIdx.y];
    const bool low = lane < all && p.moe.ids[lane] == id, high = lane + 32 < all && p.moe.ids[lane + 32] == id;
    const uint64_t same =
        static_cast<uint64_t>(__ballot_sync(0xffffffffu, high)) << 32 | __ballot_sync(0xffffffffu, low);
    const uint64_t below = (uint64_t{1} << blockIdx.y) - 1;
    if (static_cast<uint64_t>(id) >= p.moe.experts || __popcll(same & below) % kFewTokens != 0) return;
    expert = static_cast<int>(id);
    choices = same & ~below;
    count = min(__popcll(choices), kFewTokens);
  }

  // Of is the choice or row that is token number i, or the last one.
  __device__ __forceinline__ int Of(int i) const {
    i = min(i, count - 1);
    if (kKind == kQuantizedLinear) return i;
    uint64_t rest = choices;
    for (; i > 0; --i) rest &= rest - 1;
    return __ffsll(static_cast<long long>(rest)) - 1;
  }
};

// DirectCall is a product, and the blocks of 32 columns and the panels of a matrix.
struct DirectCall {
  QuantizedProduct p;
  int units;
  int panels;
  int halves;     // gates and ups lie in halves
  int warp_bits;  // a block has 1 << warp_bits warps
};

// Lines are the addresses of a lane's four rows of weights and of its token, from the warp's first step on: a step is
// 32 columns of e2m1 or 128 of e4m3.
struct Lines {
  const char *codes, *scale, *x;
  int steps;
};

// AddE2M1 adds the products of the warp's columns with e2m1 weights, and returns the bits of their powers. It calls
// wait before it reads activations. kAny: powers may be too large for bfloat16. kSteps are in flight.
template <int kSteps, bool kAny, class Wait>
__device__ __forceinline__ uint32_t AddE2M1(Lines at, const Wait& wait, float (&sum)[2][4]) {
  uint4 codes[kSteps];
  uint32_t powers[kSteps], seen = 0;
  uint2 x[2];  // of the next step
  const auto load = [&](int i, int step) {
    if (step >= at.steps) return;
    codes[i] = LoadWeights(at.codes + step * 256);
    powers[i] = LoadWord(at.scale + step * 16);
  };
#pragma unroll
  for (int i = 0; i < kSteps; ++i) load(i, i);
  const auto load_x = [&](int step) {
    if (step >= at.steps) return;
    const uint2* const from = reinterpret_cast<const uint2*>(at.x + step * 64);
    x[0] = from[0];
    x[1] = from[4];
  };
  wait();
  load_x(0);
#pragma unroll 1
  while (at.steps > 0) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (i >= at.steps) break;
      uint32_t right[2][2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        right[half][0] = __byte_perm(x[half].x, x[half].y, 0x5410);
        right[half][1] = __byte_perm(x[half].x, x[half].y, 0x7632);
      }
      load_x(i + 1);
      const uint32_t four[4] = {codes[i].x, codes[i].y, codes[i].z, codes[i].w}, power = powers[i];
      const uint32_t further[4] = {four[0] >> 8, four[1] >> 8, four[2] >> 8, four[3] >> 8};
      load(i, i + kSteps);
      seen |= power;
      uint32_t factors[4];
      FactorsOf(kAny ? 0x7f7f7f7f : power, factors);
      float product[2][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t left[2][4];
        Widen(four, further, half, factors, left);
#pragma unroll
        for (int m = 0; m < 2; ++m)
          Multiply<BFloat>(kAny ? product[m] : sum[m], left[m], right[half][0], right[half][1]);
      }
#pragma unroll
      for (int j = 0; kAny && j < 8; ++j) {
        sum[j / 4][j % 4] += product[j / 4][j % 4] * OfExponent(power >> j / 2 * 8 & 255);
      }
    }
    at.codes += kSteps * 256;
    at.scale += kSteps * 16;
    at.x += kSteps * 64;
    at.steps -= kSteps;
  }
  return seen;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// MultiplyE4M3 adds the product of 16 rows and 8 columns, 32 deep.
__device__ __forceinline__ void MultiplyE4M3(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// AddE4M3 does the same with weights of e4m3, and rounds activations of type T. It needs at least one step.
template <class T, class Wait>
__device__ __forceinline__ void AddE4M3(Lines at, const Wait& wait, float (&sum)[2][4]) {
  const int lane = threadIdx.x % 32;
  uint4 codes[8];
  Pack<T, 4> x[8];  // of each 16 columns four; the token's other lanes have the rest
  float scale = 0;
  const auto load_x = [&] {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = LoadPack<4>(reinterpret_cast<const T*>(at.x) + i * 16);
    at.x += 128 * sizeof(T);
  };
#pragma unroll
  for (int i = 0; i < 8; ++i) codes[i] = LoadWeights(at.codes + i * 256);
  scale = __uint_as_float(LoadWord(at.scale));
  wait();
  load_x();
#pragma unroll 1
  for (; at.steps > 0; --at.steps) {
    const bool more = at.steps > 1;
    float greatest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float v[4];
      ToFloats(x[i], v);
      greatest = fmaxf(greatest, fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3]))));
    }
    greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 1));
    greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 2));
    const float factor = FactorOfBlock(greatest), own = greatest / 448.0f;
    uint32_t right[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float v[4];
      ToFloats(x[i], v);
      right[i] = EightBits(v[0] * factor, v[1] * factor) |
                 static_cast<uint32_t>(EightBits(v[2] * factor, v[3] * factor)) << 16;
    }
    if (more) load_x();
    float part[2][4] = {}, steps[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) steps[i] = __shfl_sync(0xffffffffu, own, lane % 4 * 8 + i * 4) * scale;
    at.codes += 2048;
    at.scale += 4;
    if (more) scale = __uint_as_float(LoadWord(at.scale));
#pragma unroll
    for (int u = 0; u < 8; u += 2) {
      const uint4 low = codes[u], high = codes[u + 1];
      if (more) {
        codes[u] = LoadWeights(at.codes + u * 256);
        codes[u + 1] = LoadWeights(at.codes + (u + 1) * 256);
      }
      const uint32_t left[2][4] = {{low.x, low.y, high.x, high.y}, {low.z, low.w, high.z, high.w}};
#pragma unroll
      for (int m = 0; m < 2; ++m) MultiplyE4M3(part[m], left[m], right[u], right[u + 1]);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j / 4][j % 4] += part[j / 4][j % 4] * steps[j % 2];
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// StoreActivated and StoreProducts store the block's sums, [warp][number of a lane][lane], for rows of pair number
// blockIdx.x.
__device__ __forceinline__ float Total(const float* sums, int row, int token) {
  const float* const of = sums + (row % 4 * 2 + token % 2) * 32 + row / 4 * 4 + token / 2;
  float total = 0;
#pragma unroll 1
  for (unsigned w = 0; w < blockDim.x / 32; ++w) total += of[w * kSums * 32];
  return total;
}
__device__ __forceinline__ void StoreActivated(const QuantizedProduct& p, const Taken<kQuantizedGateUp>& taken,
                                               const float* sums) {
  const bool gated = p.moe.packing != Packing::kNone, turns = p.moe.packing == Packing::kInterleaved;
  const int bits = gated ? 4 : 5;  // of the pairs of a token
#pragma unroll 1
  for (int at = threadIdx.x; at < taken.count << bits; at += blockDim.x) {
    const int i = at & ((1 << bits) - 1), token = at >> bits;
    const size_t inner = (static_cast<size_t>(blockIdx.x) << bits) + i;
    if (inner >= p.moe.inner) continue;
    float gate = Total(sums, turns ? 2 * i : i, token), up = 0;
    if (gated) up = Total(sums, turns ? 2 * i + 1 : kPanelRows + i, token);
    if (p.bias != nullptr) {
      const float* const bias = static_cast<const float*>(p.bias) + taken.expert * p.weights.n;
      gate += bias[GateRow(p.moe, inner)];
      if (gated) up += bias[UpRow(p.moe, inner)];
    }
    PutNumber(p.y, taken.Of(token) * p.moe.inner + inner, p.y_type, Activated(p.moe, gate, up));
  }
}
template <QuantizedKind kKind>
__device__ __forceinline__ void StoreProducts(const QuantizedProduct& p, const Taken<kKind>& taken, const float* sums) {
  const size_t n = p.weights.n;
#pragma unroll 1
  for (int at = threadIdx.x; at < kRows * taken.count; at += blockDim.x) {
    const int token = at / kRows;
    const size_t row = static_cast<size_t>(blockIdx.x) * kRows + at % kRows, of = taken.Of(token);
    if (row >= n) continue;
    float v = Total(sums, at % kRows, token);
    if (kKind == kQuantizedLinear) {
      if (p.bias != nullptr) v += Number(p.bias, row, p.y_type);
    } else {
      if (p.bias != nullptr) v += static_cast<const float*>(p.bias)[taken.expert * n + row];
      v *= Number(p.moe.weights, of, p.moe.weights_type);
    }
    PutNumber(p.y, of * n + row, p.y_type, v);
  }
}

// MultiplyDirect: T is the type of activations. Registers: see kWarps.
template <bool kEightBits, class T, QuantizedKind kKind>
__global__ void __launch_bounds__(32 * kMostWarps<kEightBits>, kWarps<kEightBits> / kMostWarps<kEightBits>)
    MultiplyDirect(const __grid_constant__ DirectCall a) {
  extern __shared__ float sums[];
  // Ids and weights existed before the first product began; the wait for its results comes as late as possible.
  if (kKind != kQuantizedOutputs) {
    WaitForPrevious();
    LetNextStart();
  }
  const auto wait = [] {
    if (kKind == kQuantizedOutputs) {
      WaitForPrevious();
      LetNextStart();
    }
  };
  const Taken<kKind> taken(a.p);
  if (taken.count == 0) return wait();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = taken.Of(lane / 4);
  const size_t last = lane / 16, numbered = a.halves ? blockIdx.x + last * (a.panels / 2) : 2 * blockIdx.x + last;
  const size_t panel = static_cast<size_t>(taken.expert) * a.panels + min(numbered, static_cast<size_t>(a.panels - 1));
  const size_t row = kKind == kQuantizedGateUp ? own / static_cast<int>(a.p.moe.top_k) : own;
  const int quad = lane / 4 % 4;
  // Columns are divided among the warps, whole steps each.
  const int steps = kEightBits ? a.units / 4 : a.units, begin = steps * warp >> a.warp_bits;
  Lines at;
  at.steps = (steps * (warp + 1) >> a.warp_bits) - begin;
  at.codes = static_cast<const char*>(a.p.weights.codes) + (panel * steps + begin) * (kEightBits ? 2048 : 256) +
             lane % 4 * 64 + quad * 16;
  at.scale = static_cast<const char*>(a.p.weights.scale) + (panel * steps + begin) * (kEightBits ? 4 : 16) +
             (kEightBits ? 0 : quad * 4);
  at.x = static_cast<const char*>(a.p.x) +
         (row * a.p.weights.k + begin * (kEightBits ? 128 : 32) + lane % 4 * 4) * sizeof(T);
  float sum[2][4] = {};
  if constexpr (kEightBits) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    AddE4M3<T>(at, wait, sum);
#endif
  } else if (__any_sync(0xffffffffu, (AddE2M1<kAhead, false>(at, wait, sum) & kGreat) != 0)) {
#pragma unroll
    for (int j = 0; j < kSums; ++j) sum[j / 4][j % 4] = 0;
    AddE2M1<1, true>(at, [] {}, sum);
  }
#pragma unroll
  for (int j = 0; j < kSums; ++j) sums[(warp * kSums + j) * 32 + lane] = sum[j / 4][j % 4];
  __syncthreads();
  if constexpr (kKind == kQuantizedGateUp) {
    StoreActivated(a.p, taken, sums);
  } else {
    StoreProducts<kKind>(a.p, taken, sums);
  }
}

template <bool kEightBits, class T, QuantizedKind kKind>
cudaError_t Run(DirectCall a, unsigned pairs, cudaStream_t stream) {
  const unsigned groups = kKind == kQuantizedLinear ? 1 : static_cast<unsigned>(a.p.moe.tokens * a.p.moe.top_k);
  // With enough blocks, each has fewer warps.
  const unsigned most = static_cast<unsigned>(kWarps<kEightBits> * TheDevice().multiprocessors);
  const int steps = a.units / (kEightBits ? 4 : 1);
  for (int warps = kMostWarps<kEightBits>; warps > 1; warps /= 2) ++a.warp_bits;
  while (a.warp_bits > 0 && (steps < 1 << a.warp_bits || (a.warp_bits > 2 && pairs * groups << a.warp_bits > most))) {
    --a.warp_bits;
  }
  const int warps = 1 << a.warp_bits;
  return Launch(MultiplyDirect<kEightBits, T, kKind>, dim3(pairs, groups), 32 * warps, warps * kSums * 128, stream, a);
}

}  // namespace

bool DirectTakes(const QuantizedProduct& p) {
  if (p.kind == kQuantizedLinear ? p.rows > kFewTokens : p.moe.tokens * p.moe.top_k > kMostChoices) return false;
  if (p.weights.n == 0 || p.weights.k == 0 || !Aligned(p.x, 16)) return false;
  if (p.weights.code == Code::kE4m3) {
    return HopperTakes(p) && p.type == (p.kind == kQuantizedOutputs ? kMojoFloat32 : kMojoBFloat16);
  }
  return p.weights.code == Code::kE2m1 && p.weights.scales == kMojoExponentScales &&
         p.rounding == Activations::kFloat && p.type == kMojoBFloat16;
}

cudaError_t QuantizedDirect(const QuantizedProduct& p, cudaStream_t stream) {
  DirectCall a = {};
  a.p = p;
  a.units = static_cast<int>(p.weights.k / kBlockColumns);
  a.panels = static_cast<int>(DivideUp(p.weights.n, kPanelRows));
  a.halves = p.kind == kQuantizedGateUp && p.moe.packing == Packing::kHalves;
  const auto pairs = static_cast<unsigned>(a.halves ? a.panels / 2 : DivideUp(a.panels, 2));
  const bool eights = p.weights.code == Code::kE4m3;
  switch (p.kind) {
    case kQuantizedGateUp:
      return (eights ? Run<true, BFloat, kQuantizedGateUp> : Run<false, BFloat, kQuantizedGateUp>)(a, pairs, stream);
    case kQuantizedOutputs:
      return (eights ? Run<true, float, kQuantizedOutputs> : Run<false, BFloat, kQuantizedOutputs>)(a, pairs, stream);
    default:
      return (eights ? Run<true, BFloat, kQuantizedLinear> : Run<false, BFloat, kQuantizedLinear>)(a, pairs, stream);
  }
}

}  // namespace mojo
