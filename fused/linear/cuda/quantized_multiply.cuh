// The multiplication of quantized weights and activations on compute capability 9.0.
//
// Weights are the left operand, from registers, and tokens the right one, from shared memory. Two warpgroups multiply
// 128 rows each, as two operands of 64: wgmma's rows g and g + 8 of a warp's 16 are rows 4t and 4t + 1 of panel g / 4
// in the first, and 4t + 2 and 4t + 3 in the second (t = g % 4). e4m3 codes are operands as stored. e2m1 codes are
// widened to bfloat16, which holds them times their block's power of two exactly, so that sums of all columns stay in
// wgmma's registers. Sums of 128 columns of e4m3 are multiplied with their two scales in float32.
#pragma once

#include "linear/cuda/quantized_load.cuh"

namespace mojo {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ uint4 LoadShared4(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}
__device__ __forceinline__ void LoadShared2(uint32_t address, uint32_t* v) {
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(address));
}
__device__ __forceinline__ uint32_t LoadShared16(uint32_t address) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address));
  return v;
}
__device__ __forceinline__ uint32_t LoadShared(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}

// StageReader is the location of a lane's operands in a stage.
template <bool kEightBits, int kTokens>
struct StageReader {
  typedef StageLayout<kEightBits, kTokens> L;
  uint32_t codes, scales;

  __device__ __forceinline__ explicit StageReader(bool halves) {
    const LaneRows<L::kOperands> of;
    const int slot = halves ? of.last * (kPlacePanels / 2) + of.pair : of.Slot();
    codes = L::kCodesAt + slot * (L::kUnits * L::kUnitBytes) + threadIdx.x % 4 * 64 + of.row * 4;
    scales = L::kScalesAt + (kEightBits ? of.Slot() * 4 : slot * (L::kUnits * 16) + of.row);
  }
};

// Quantized is a lane's part of an e2m1 unit: codes of 2 * kOperands rows, and a byte of powers for each.
template <int kOperands>
struct Quantized {
  uint32_t codes[2 * kOperands], powers;

  __device__ __forceinline__ void Load(uint32_t codes_at, uint32_t powers_at) {
    if constexpr (kOperands == 2) {
      const uint4 four = LoadShared4(codes_at);
      codes[0] = four.x, codes[1] = four.y, codes[2] = four.z, codes[3] = four.w;
      powers = LoadShared(powers_at);
    } else {
      LoadShared2(codes_at, codes);
      powers = LoadShared16(powers_at);
    }
  }
};

// MultiplySteps multiplies a place of at most 8 * kColumns tokens with weights of e2m1, from the ring's stage on, and
// frees its stages.
//
// Each step widens two operands of depth 16: both operands of half a unit, or one operand of both halves. Meanwhile the
// tensor cores multiply the operands of the step before.
template <int kTokens, int kColumns>
__device__ __forceinline__ uint32_t MultiplySteps(const HopperCall& a,
                                                  const Span<StageLayout<false, kTokens>::kUnits>& span,
                                                  uint32_t shared, Ring<StageLayout<false, kTokens>::kStages>* ring,
                                                  Sums<false, kTokens>& sum) {
  typedef StageLayout<false, kTokens> L;
  constexpr int kOperands = L::kOperands, kTurns = L::kUnits * kOperands;  // of a stage
  const StageReader<false, kTokens> at(a.halves);
  const bool first_lane = threadIdx.x % 32 == 0;
#pragma unroll
  for (int i = 0; i < kOperands * kColumns * 4; ++i) sum[i / (kColumns * 4)][i / 4 % kColumns][i % 4] = 0;
  uint32_t left[2][2][4], seen = 0;
#pragma unroll 1
  for (int k = span.begin; k < span.end; ++k) {
    WaitForPhase(shared + L::kFullAt + ring->stage * 8, ring->parity);
    SeeCopies();
    const uint32_t stage = shared + ring->stage * L::kStageBytes;
    const uint64_t right = Descriptor(stage);
    Quantized<kOperands> unit;
    unit.Load(stage + at.codes, stage + at.scales);
    uint32_t factors[2 * kOperands];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int u = turn / kOperands;
      if (turn % kOperands == 0) {
        FactorsOf(unit.powers, factors);
        seen |= unit.powers;
      }
      // The registers that are written now were read by the multiplication before the last one.
      WaitForMultiply<1>();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int half = kOperands == 2 ? turn % 2 : i, rows = kOperands == 2 ? 2 * i : 0;
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          left[turn % 2][i][row] = Widened(unit.codes[rows + row], half, factors[rows + row]);
          left[turn % 2][i][2 + row] = Widened(unit.codes[rows + row] >> 8, half, factors[rows + row]);
        }
      }
      if (turn % kOperands == kOperands - 1 && u + 1 < L::kUnits) {
        unit.Load(stage + at.codes + (u + 1) * L::kUnitBytes, stage + at.scales + (u + 1) * 16);
      }
      BeginMultiply();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int half = kOperands == 2 ? turn % 2 : i, operand = kOperands == 2 ? i : 0;
        MultiplyWidened<false>(Columns<kColumns>(), sum[operand], left[turn % 2][i],
                               right + u / 2 * (L::kTokenBytes >> 4) + (u % 2 * 2 + half) * kDeeper, 1);
      }
      EndMultiply();
    }
    WaitForMultiply<0>();
    if (first_lane) Arrive(shared + L::kFreeAt + ring->stage * 8);
    ring->Advance();
  }
#pragma unroll
  for (int i = 0; i < kOperands; ++i) Arrived(sum[i]);
  return seen;
}

// MultiplyFew does the same by mma.sync, for a few tokens: warps do not wait for each other, and need few registers.
template <int kTokens, int kColumns>
__device__ __forceinline__ uint32_t MultiplyFew(const HopperCall& a,
                                                const Span<StageLayout<false, kTokens>::kUnits>& span, uint32_t shared,
                                                Ring<StageLayout<false, kTokens>::kStages>* ring,
                                                Sums<false, kTokens>& sum) {
  typedef StageLayout<false, kTokens> L;
  const StageReader<false, kTokens> at(a.halves);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kColumns * 8; ++i) sum[i / (kColumns * 4)][i / 4 % kColumns][i % 4] = 0;
  uint32_t seen = 0;
#pragma unroll 1
  for (int k = span.begin; k < span.end; ++k) {
    WaitForPhase(shared + L::kFullAt + ring->stage * 8, ring->parity);
    const uint32_t stage = shared + ring->stage * L::kStageBytes;
    // Of token lane / 4; pieces of 16 bytes are swapped by its number. The code is short, since it comes from memory
    // too.
    uint32_t row = stage + lane / 4 * 128 + lane / 4 * 16 + lane % 4 * 4;
#pragma unroll 1
    for (int u = 0; u < L::kUnits; ++u) {
      const uint4 four = LoadShared4(stage + at.codes + u * L::kUnitBytes);
      const uint32_t codes[4] = {four.x, four.y, four.z, four.w};
      const uint32_t further[4] = {four.x >> 8, four.y >> 8, four.z >> 8, four.w >> 8};
      const uint32_t exponents = LoadShared(stage + at.scales + u * 16);
      uint32_t factors[4];
      FactorsOf(exponents, factors);
      seen |= exponents;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t left[2][4];
        Widen(codes, further, half, factors, left);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const uint32_t b0 = LoadShared((row ^ half * 32) + c * 1024),
                         b1 = LoadShared((row ^ (half * 32 + 16)) + c * 1024);
#pragma unroll
          for (int m = 0; m < 2; ++m) Multiply<BFloat>(sum[m][c], left[m], b0, b1);
        }
      }
      row = u % 2 == 0 ? row ^ 64 : (row ^ 64) + L::kTokenBytes;
    }
    // One lane arrives for its warp, which racecheck does not follow; it is content where all lanes do.
    __syncwarp();
    if (lane == 0) Arrive(shared + L::kFreeAt + ring->stage * 8);
    ring->Advance();
  }
  return seen;
}

// MultiplyEights does the same with weights of e4m3, 8 * kColumns tokens at once.
template <int kTokens, int kColumns>
__device__ __forceinline__ void MultiplyEights(const HopperCall& a,
                                               const Span<StageLayout<true, kTokens>::kUnits>& span, int count,
                                               uint32_t shared, Ring<StageLayout<true, kTokens>::kStages>* ring,
                                               Sums<true, kTokens>& sum) {
  typedef StageLayout<true, kTokens> L;
  const StageReader<true, kTokens> at(a.halves);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kTokens; ++i) sum[i / (kTokens / 2)][i / 4 % (kTokens / 8)][i % 4] = 0;
#pragma unroll 1
  for (int k = span.begin; k < span.end; ++k) {
    WaitForPhase(shared + L::kFullAt + ring->stage * 8, ring->parity);
    SeeCopies();
    const uint32_t stage = shared + ring->stage * L::kStageBytes;
    const float scale = __uint_as_float(LoadShared(stage + at.scales));
#pragma unroll
    for (int m = 0; m < L::kOperands; ++m) {
      uint32_t left[L::kUnits][4];
#pragma unroll
      for (int u = 0; u < L::kUnits; ++u) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          LoadShared2(stage + at.codes + u * L::kUnitBytes + m * 8 + i * 256, left[u] + 2 * i);
      }
#pragma unroll
      for (int first = 0; first < kTokens / 8; first += kColumns) {
        if (first * 8 >= count) break;
        float part[kColumns][4];
        float2 steps[kColumns];
        BeginMultiply();
#pragma unroll
        for (int u = 0; u < L::kUnits; ++u) {
          MultiplyWidened<true>(Columns<kColumns>(), part, left[u],
                                Descriptor(stage) + u * kDeeper + first * (1024 >> 4), u > 0);
        }
        EndMultiply();
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const uint32_t step = stage + L::kScalesAt + (kPlacePanels + (first + c) * 8 + lane % 4 * 2) * 4;
          asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(steps[c].x), "=f"(steps[c].y) : "r"(step));
        }
        WaitForMultiply<0>();
        Arrived(part);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const float factor[2] = {steps[c].x * scale, steps[c].y * scale};
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[m][first + c][i] += part[c][i] * factor[i % 2];
        }
      }
    }
    __syncwarp();
    if (lane == 0) Arrive(shared + L::kFreeAt + ring->stage * 8);
    ring->Advance();
  }
}

// MultiplyGreat computes, slowly, the sums for weights whose powers above 2^127 do not fit bfloat16.
template <int kTokens>
__device__ __forceinline__ void MultiplyGreat(const HopperCall& a,
                                              const Span<StageLayout<false, kTokens>::kUnits>& span, const Place& place,
                                              Sums<false, kTokens>& sum) {
  typedef StageLayout<false, kTokens> L;
  constexpr int kRows = 2 * L::kOperands;
  const LaneRows<L::kOperands> of;
  const int lane = threadIdx.x % 32, panel = PanelOf(a, place.row_block, of.Slot());
  if (panel < 0) return;
  const size_t first = (static_cast<size_t>(place.expert) * a.panels + panel) * a.units;
  const int end = min(span.end * L::kUnits, a.units);
#pragma unroll 1
  for (int i = 0; i < kTokens; ++i) {
    const int token = i / 2 * 8 + lane % 4 * 2 + i % 2;
    if (i >= kTokens / 4 || token >= place.count) break;
    const size_t row = a.p.kind == kQuantizedGateUp
                           ? __ldcg(a.p.plan.choice + place.first + token) / static_cast<int>(a.p.moe.top_k)
                           : place.first + token;
    const BFloat* const x = static_cast<const BFloat*>(a.x.numbers) + row * a.units * kBlockColumns;
    float total[kRows] = {};
#pragma unroll 1
    for (int unit = span.begin * L::kUnits; unit < end; ++unit) {
      const uint8_t* const codes = static_cast<const uint8_t*>(a.p.weights.codes) + (first + unit) * L::kUnitBytes;
      const uint8_t* const exponents = static_cast<const uint8_t*>(a.p.weights.scale) + (first + unit) * 16 + of.row;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float part = 0;
#pragma unroll 1
        for (int c = 0; c < kBlockColumns; ++c) {
          const uint32_t byte = codes[c % 16 / 4 * 64 + (of.row + r) * 4 + c % 4],
                         code = c < 16 ? byte & 15 : byte >> 4;
          part += NumberOfE2M1(code) * __bfloat162float(x[unit * kBlockColumns + SwappedColumn(c)]);
        }
        total[r] += part * OfExponent(exponents[r]);
      }
    }
    // In local memory, which can be indexed at run time.
#pragma unroll 1
    for (int r = 0; r < kRows; ++r) sum[r / 2][i / 2][r % 2 * 2 + i % 2] = total[r];
  }
}

// CallGreat is the same out of line, for kernels whose warpgroup multiplication that does not disturb.
template <int kTokens>
__device__ __noinline__ void CallGreat(const HopperCall& a, const Span<StageLayout<false, kTokens>::kUnits>& span,
                                       const Place& place, Sums<false, kTokens>& sum) {
  MultiplyGreat<kTokens>(a, span, place, sum);
}

// MultiplyPlace multiplies a place with the fewest columns that hold its tokens, among the compiled widths: for e2m1
// from kColumns on.
template <bool kEightBits, int kTokens, int kColumns>
__device__ __forceinline__ void MultiplyPlace(const HopperCall& a,
                                              const Span<StageLayout<kEightBits, kTokens>::kUnits>& span,
                                              const Place& place, uint32_t shared,
                                              Ring<StageLayout<kEightBits, kTokens>::kStages>* ring,
                                              Sums<kEightBits, kTokens>& sum) {
  if constexpr (kEightBits) {
    if (place.count <= 16) return MultiplyEights<kTokens, 2>(a, span, place.count, shared, ring, sum);
    return MultiplyEights<kTokens, kTokens == 128 ? 4 : 8>(a, span, place.count, shared, ring, sum);
  } else {
    if constexpr (8 * kColumns < kTokens) {
      constexpr int kMore = kColumns < 8 ? 2 * kColumns : kColumns == 8 ? 10 : kColumns == 10 ? 14 : 16;
      if (place.count > 8 * kColumns) return MultiplyPlace<false, kTokens, kMore>(a, span, place, shared, ring, sum);
    }
    uint32_t seen;
    if constexpr (kTokens == 16) {
      seen = MultiplyFew<kTokens, kColumns>(a, span, shared, ring, sum);
    } else {
      seen = MultiplySteps<kTokens, kColumns>(a, span, shared, ring, sum);
    }
    if (__any_sync(0xffffffffu, (seen & kGreat) != 0)) {
      constexpr int kOperands = StageLayout<false, kTokens>::kOperands, kHalf = kTokens / 2;
      Sums<false, kTokens> great = {};
      if constexpr (kTokens == 16) {
        MultiplyGreat<kTokens>(a, span, place, great);
      } else {
        CallGreat<kTokens>(a, span, place, great);
      }
#pragma unroll
      for (int i = 0; i < kOperands * kHalf; ++i) {
        sum[i / kHalf][i % kHalf / 4][i % 4] = great[i / kHalf][i % kHalf / 4][i % 4];
      }
    }
  }
}

// AddUp sums the results of a cluster's blocks in the first block. Their stages are free: a cluster has only one place.
template <bool kEightBits, int kTokens>
__device__ __forceinline__ void AddUp(int split, int count, char* memory, Sums<kEightBits, kTokens>& sum) {
  constexpr int kThreads = StageLayout<kEightBits, kTokens>::kMultipliers,
                kSums = 4 * StageLayout<kEightBits, kTokens>::kOperands;
  float* const mine = reinterpret_cast<float*>(memory) + threadIdx.x;
  const int rank = static_cast<int>(blockIdx.x) % split;
  WaitForGroup<kThreads>(2);
#pragma unroll
  for (int c = 0; c < kTokens / 8; ++c) {
    if (c * 8 >= count) break;
#pragma unroll
    for (int i = 0; i < kSums; ++i) mine[(c * kSums + i) * kThreads] = sum[i / 4][c][i % 4];
  }
  ReleaseToCluster();
  WaitForCluster();
  if (rank != 0) return;
#pragma unroll 1
  for (int other = 1; other < split; ++other) {
#pragma unroll
    for (int c = 0; c < kTokens / 8; ++c) {
      if (c * 8 >= count) break;
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        float v;
        asm volatile("ld.shared::cluster.f32 %0, [%1];"
                     : "=f"(v)
                     : "r"(InBlock(mine + (c * kSums + i) * kThreads, other)));
        sum[i / 4][c][i % 4] += v;
      }
    }
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace mojo
