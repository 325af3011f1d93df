// How quantized weights and activations get into shared memory on compute capability 9.0.
//
// A place is 16 panels of a matrix and up to kTokens rows of activations. A stage is some columns of both, in a ring as
// for MoE (moe_load.cuh). Panels are copied unchanged, in a box that one thread requests; activations are gathered in
// 16-byte pieces, in the 128-byte swizzle. A place's first stage also carries the place; a place without tokens marks
// the end.
//
// Blocks take places as they finish them, so that tiles of the same rows begin at about the same time and read them
// from L2. If there are too few places for the device, the blocks of a cluster share the columns of a single place
// instead.
#pragma once

#include "cuda/cluster.cuh"
#include "linear/cuda/quantized_product.cuh"
#include "moe/cuda/moe_load.cuh"

namespace mojo {

constexpr int kPlacePanels = 16;

// StageLayout is how a block divides shared memory for kTokens, with weights of e4m3 (kEightBits) or e2m1. A step is
// 128 bytes of each token: the columns that share a scale of e4m3, or two units of e2m1. Several blocks with few tokens
// run on a multiprocessor, so that one widens while another waits; with many it has four warpgroups that multiply for
// that, of 64 rows each instead of two of 128.
template <bool kEightBits, int kTokens>
struct StageLayout {
  static constexpr int kBlocks = kEightBits || kTokens > 32 ? 1 : kTokens == 32 ? 2 : 3;  // on a multiprocessor
  static constexpr int kOperands = kTokens == 128 ? 1 : 2;                                // of 64 rows of a warpgroup
  static constexpr int kMultipliers = kPlacePanels * kPanelRows / (64 * kOperands) * kGroup;  // threads that multiply
  static constexpr int kLoaders = kBlocks == 3 ? 32 : kBlocks == 2 ? 64 : kGroup;             // that load
  static constexpr int kThreads = kMultipliers + kLoaders;
  static constexpr int kSteps = kEightBits ? 1 : 2;  // of a stage
  static constexpr int kStepUnits = kEightBits ? 4 : 2;
  static constexpr int kUnits = kSteps * kStepUnits;
  static constexpr int kUnitBytes = kEightBits ? 512 : 256;
  static constexpr int kTokenBytes = kTokens * 128;  // of a step
  // In a stage: tokens, codes, scales: 16 bytes of each unit, or a float of each panel and then of each token.
  static constexpr int kCodesAt = kSteps * kTokenBytes;
  static constexpr int kScalesAt = kCodesAt + kPlacePanels * kUnits * kUnitBytes;
  static constexpr int kScaleBytes = kEightBits ? 4 * (kPlacePanels + kTokens) : kPlacePanels * kUnits * 16;
  static constexpr int kStageBytes = (kScalesAt + kScaleBytes + 1023) / 1024 * 1024;
  static constexpr int kStages = (kBlocks == 3 ? 74 : kBlocks == 2 ? 111 : 222) * 1024 / kStageBytes;
  // After the stages: choices and weights of each group, the greatest activations of each warp, places and barriers.
  static constexpr int kChoicesAt = kStages * kStageBytes;
  static constexpr int kGreatestAt = kChoicesAt + kMultipliers / kGroup * kTokens * 8;
  static constexpr int kPlacesAt = kGreatestAt + (kEightBits ? kMultipliers / 32 * kTokens * 4 : 0);
  static constexpr int kFullAt = kPlacesAt + kStages * 16;
  static constexpr int kFreeAt = kFullAt + kStages * 8;
  static constexpr int kNextAt = kFreeAt + kStages * 8;
  static constexpr int kBytes = kNextAt + 4;
  static_assert(kBytes <= (kBlocks == 3 ? 75 : kBlocks == 2 ? 113 : 227) * 1024, "shared memory");
};

// Sums are a lane's accumulators: 8 * kTokens columns of each operand.
template <bool kEightBits, int kTokens>
using Sums = float[StageLayout<kEightBits, kTokens>::kOperands][kTokens / 8][4];

// HopperCall is the kernels' parameters for a product.
struct HopperCall {
  QuantizedProduct p;
  Operands x;   // the input
  Operands to;  // kQuantizedGateUp: the output
  int units;    // blocks of 32 columns
  int panels;   // of a matrix
  int row_blocks, split;
  int halves;     // gates and ups lie in halves
  int narrow;     // y cannot be stored four numbers at a time
  uint64_t stay;  // how long L2 is to keep weights
  CUtensorMap codes, scales;
};

// SwappedColumn is the position at which PrepareOperands puts a bfloat16 column: of a block's four columns that a lane
// widens, the first and third become adjacent, and the second and fourth.
__device__ __forceinline__ int SwappedColumn(int column) {
  return (column & ~15) + column % 16 / 4 * 2 + column % 2 * 8 + column % 4 / 2;
}

// PanelOf is the panel of a matrix that slot number s of a place holds, or -1. In halves, a warp has a panel of gates
// and the panel of their ups.
__device__ __forceinline__ int PanelOf(const HopperCall& a, int row_block, int s) {
  const int half = a.panels / 2,
            panel = a.halves ? row_block * (kPlacePanels / 2) + s / 2 : row_block * kPlacePanels + s;
  if (panel >= (a.halves ? half : a.panels)) return -1;
  return a.halves && s % 2 != 0 ? panel + half : panel;
}

// LaneRows are the rows of weights that a lane multiplies: 2 * kOperands of a panel, row and the next ones. Warps have
// two panels, slots 2 * pair and the next of a place, and with one operand half of both.
template <int kOperands>
struct LaneRows {
  int pair, last, row;

  __device__ __forceinline__ LaneRows() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, among = lane / 4 % 4;
    pair = kOperands == 2 ? warp : warp / 2;
    last = lane / 16;
    row = kOperands == 2 ? among * 4 : warp % 2 * 8 + among * 2;
  }
  __device__ __forceinline__ int Slot() const { return pair * 2 + last; }
};

// CountPlaces is the number of places; EntryOf is a place's entry of the plan, and PlaceOf the place itself.
template <int kTokens>
__device__ __forceinline__ int CountPlaces(const HopperCall& a) {
  if (a.p.kind == kQuantizedLinear) return static_cast<int>(a.p.rows + kTokens - 1) / kTokens * a.row_blocks;
  return __ldcg(a.p.plan.tile_count) * a.row_blocks;
}
__device__ __forceinline__ int4 EntryOf(const HopperCall& a, int index) {
  if (a.p.kind == kQuantizedLinear) return make_int4(0, 0, 0, static_cast<int>(a.p.rows));
  return __ldcg(reinterpret_cast<const int4*>(a.p.plan.tiles + index / a.row_blocks));
}
template <int kTokens>
__device__ __forceinline__ Place PlaceOf(const HopperCall& a, const int4& entry, int index) {
  Place place;
  place.Set(entry, index, a.row_blocks, kTokens);
  return place;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Span is the stages of a block's part of the columns.
template <int kUnits>
struct Span {
  int begin, end;
  __device__ __forceinline__ explicit Span(const HopperCall& a) {
    const int stages = (a.units + kUnits - 1) / kUnits, rank = static_cast<int>(blockIdx.x) % a.split;
    begin = stages * rank / a.split;
    end = stages * (rank + 1) / a.split;
  }
};

// CopyPieces starts the copies of a token's pieces, one of each step, if `is` is true: number piece from base on, and
// every 128 bytes further. Bytes past left are zeroed. It is few instructions, since each one takes time from the
// threads that multiply.
template <int kSteps, int kTokenBytes>
__device__ __forceinline__ void CopyPieces(uint32_t to, const char* base, uint32_t piece, int left, bool is) {
  static_assert(kSteps <= 2, "steps of a stage");
  asm volatile(
      "{\n\t"
      ".reg .pred is, more;\n\t"
      ".reg .u64 from;\n\t"
      "setp.ne.b32 is, %3, 0;\n\t"
      "setp.gt.and.s32 more, %6, 1, is;\n\t"
      "mad.wide.u32 from, %2, 16, %1;\n\t"
      "@is cp.async.cg.shared.global.L2::128B [%0], [from], 16, %4;\n\t"
      "@more cp.async.cg.shared.global.L2::128B [%0 + %7], [from + 128], 16, %5;\n\t"
      "}" ::"r"(to),
      "l"(base), "r"(piece), "r"(static_cast<int>(is)), "r"(left > 0 ? 16 : 0), "r"(left > 128 ? 16 : 0), "n"(kSteps),
      "n"(kTokenBytes));
}

// CopyFactor starts the copy of number at of floats.
__device__ __forceinline__ void CopyFactor(uint32_t to, const void* floats, uint32_t at) {
  asm volatile(
      "{\n\t"
      ".reg .u64 from;\n\t"
      "mad.wide.u32 from, %2, 4, %1;\n\t"
      "cp.async.ca.shared.global [%0], [from], 4;\n\t"
      "}" ::"r"(to),
      "l"(floats), "r"(at));
}

// CopyPanels starts the copies of a stage's panels and scales. In halves, ups come after all gates.
template <bool kEightBits, int kTokens>
__device__ __forceinline__ void CopyPanels(const HopperCall& a, const Place& place, int k, uint32_t stage,
                                           uint32_t full) {
  typedef StageLayout<kEightBits, kTokens> L;
  constexpr int kCodes = kPlacePanels * L::kUnits * L::kUnitBytes, kFactors = kPlacePanels * L::kUnits * 16;
  const int panel = place.row_block * (a.halves ? kPlacePanels / 2 : kPlacePanels);
  ArriveExpecting(full, kCodes + (kEightBits ? 0 : kFactors));
  CopyBox(stage + L::kCodesAt, &a.codes, full, k * (L::kUnits * L::kUnitBytes / 8), panel, 0, place.expert, 0, a.stay);
  if (!kEightBits)
    CopyBox(stage + L::kScalesAt, &a.scales, full, k * (L::kUnits * 2), panel, 0, place.expert, 0, a.stay);
}

// LoadPlaces loads the block's places, with all loading threads. Weights of the second product's first stages are in
// flight before it waits for the results of the first one.
template <bool kEightBits, int kTokens, QuantizedKind kKind>
__device__ __forceinline__ void LoadPlaces(const HopperCall& a, char* memory) {
  typedef StageLayout<kEightBits, kTokens> L;
  constexpr int kLines = L::kLoaders / 8, kCopies = kTokens / kLines;  // tokens at once, and of a thread
  constexpr int kColumnBytes = kEightBits ? 1 : 2;
  const uint32_t shared = SharedAddress(memory), full = shared + L::kFullAt, free = shared + L::kFreeAt;
  Place* const places = reinterpret_cast<Place*>(memory + L::kPlacesAt);
  const int n = threadIdx.x - L::kMultipliers, line = a.units * 32 * kColumnBytes;  // bytes
  const Span<L::kUnits> span(a);
  Ring<L::kStages> ring;
  bool waited = kKind != kQuantizedOutputs;
  if (waited) {
    WaitForPrevious();
    LetNextStart();
  }
  int* const next = reinterpret_cast<int*>(memory + L::kNextAt);
  int index = blockIdx.x / a.split;
  while (index < CountPlaces<kTokens>(a)) {  // in no register, of which there are few
    if (kKind != kQuantizedLinear && a.split == 1 && n == 0)
      *next = atomicAdd(a.p.plan.begun + (kKind == kQuantizedOutputs), 1) + static_cast<int>(gridDim.x);
    const Place place = PlaceOf<kTokens>(a, EntryOf(a, index), index);
    const auto begin = [&](int stage, int k) {
      if (k == span.begin) places[stage] = place;
      CopyPanels<kEightBits, kTokens>(a, place, k, shared + stage * L::kStageBytes, full + stage * 8);
    };
    int begun = span.begin;
    if (!waited) {
      for (; n == 0 && begun < span.end && begun - span.begin < L::kStages; ++begun) begin(begun - span.begin, begun);
      WaitForPrevious();
      LetNextStart();
      waited = true;
    }
    // In the last line, slots past the tile's tokens repeat the last token; their sums are unused.
    uint32_t from[kCopies];  // token offsets, in pieces of 16 bytes
    const auto row_of = [&](int i) {
      const int at = place.first + min(i, place.count - 1);
      return kKind == kQuantizedGateUp ? __ldcg(a.p.plan.choice + at) / static_cast<int>(a.p.moe.top_k) : at;
    };
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      from[i] = static_cast<uint32_t>(row_of(n / 8 + kLines * i)) * (line / 16) + n % 8;
    }
    // e4m3: the start of the factors of this thread's token. The last threads also have a panel's factors.
    constexpr int kScaledPanels = L::kLoaders - kPlacePanels;
    uint32_t step_of = 0;
    if (kEightBits && n < kTokens) step_of = static_cast<uint32_t>(row_of(n)) * (a.units / 4);
    for (int k = span.begin; k < span.end; ++k) {
      const uint32_t stage = shared + ring.stage * L::kStageBytes, filled = full + ring.stage * 8;
      WaitForPhase(free + ring.stage * 8, ring.parity ^ 1);
      if (n == 0 && k >= begun) begin(ring.stage, k);
      const char* const numbers = static_cast<const char*>(a.x.numbers) + k * (L::kSteps * 128);
      // Bytes of the line from there on; lines of e4m3 are whole steps.
      const int left = kEightBits ? 128 : line - k * L::kSteps * 128 - n % 8 * 16;
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        CopyPieces<L::kSteps, L::kTokenBytes>(stage + Swapped(n / 8 + i * kLines, n % 8, 8), numbers, from[i], left,
                                              i * kLines < place.count);
      }
      const uint32_t scales = stage + L::kScalesAt;
      if (kEightBits && n < kTokens) CopyFactor(scales + (kPlacePanels + n) * 4, a.x.steps, step_of + k);
      if (kEightBits && n >= kScaledPanels) {
        int slot = n - kScaledPanels;
        asm volatile("" : "+r"(slot));  // keeps derived values out of registers between stages
        const int panel = max(PanelOf(a, place.row_block, slot), 0);
        CopyFactor(scales + slot * 4, a.p.weights.scale,
                   static_cast<uint32_t>(place.expert * a.panels + panel) * (a.units / 4) + k);
      }
      ArriveAfterCopies(filled);
      ring.Advance();
    }
    if (a.split > 1) break;
    if (kKind == kQuantizedLinear) {
      index += static_cast<int>(gridDim.x);
      continue;
    }
    WaitForGroup<L::kLoaders>(1);
    index = *next;
    WaitForGroup<L::kLoaders>(1);
  }
  if (!waited) {
    WaitForPrevious();
    LetNextStart();
  }
  if (a.split > 1) return;
  WaitForPhase(free + ring.stage * 8, ring.parity ^ 1);
  if (n == 0) {
    places[ring.stage].count = 0;
    Arrive(full + ring.stage * 8);
  }
  Arrive(full + ring.stage * 8);
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace mojo
