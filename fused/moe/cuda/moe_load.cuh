// How the tiles of the products get into shared memory on compute capability 9.0.
//
// The threads that load and the two warpgroups that multiply pass each other the stages of a ring, with a full and a
// free barrier for each stage. The first stage of a tile also carries its place, which has zero choices after the last
// tile.
//
// Rows are boxes of a tensor that one thread requests, with gates and ups by eights in a single box. All loading
// threads gather the choices of the first product; the choices of the second are in order and are boxes.
#pragma once

#include "cuda/hopper.cuh"
#include "cuda/tensor_map.h"
#include "moe/cuda/moe_tile.cuh"

namespace mojo {

constexpr int kGroup = 128;                       // threads of a warpgroup
constexpr int kTurnedBytes = 32 * kTileDeep * 2;  // of a box of 32 rows of [depth, rows]
constexpr int kBoxTokens = 32;                    // of one of the second product's boxes
constexpr int kChunk = 16;                        // tokens that go through shared memory at once when they are stored
constexpr int kChunkStride = 64 + 4;              // floats of one of them

// Form is how a block for tiles of kTokens divides shared memory: 106 KB for 64 tokens, so that two blocks run on a
// multiprocessor and one loads while the other stores; 211 KB for 128 and 213 KB for 256. The stages are 96 KB or
// 192 KB, and all of them but one or two are in flight.
template <int kTokens>
struct Form {
  static constexpr int kBlocks = kTokens == 64 ? 2 : 1;        // on a multiprocessor
  static constexpr int kLoaders = kBlocks == 2 ? 64 : kGroup;  // threads that load, after the two groups
  static constexpr int kThreads = 2 * kGroup + kLoaders;
  static constexpr int kStageBytes = kRowBytes + kTokens * kTileDeep * 2;
  static constexpr int kStages = 196608 / kBlocks / kStageBytes;
  static constexpr int kChunks = kBlocks == 2 ? 1 : 2;  // that a group has room for
  static constexpr int kChunkBytes = kChunk * kChunkStride * 4;
  // After the stages: chunks of both groups, choices and weights of both, places and barriers of the stages.
  static constexpr int kChunksAt = kStages * kStageBytes;
  static constexpr int kChoicesAt = kChunksAt + 2 * kChunks * kChunkBytes;
  static constexpr int kPlacesAt = kChoicesAt + 2 * kTokens * 8;
  static constexpr int kFullAt = kPlacesAt + kStages * 16;
  static constexpr int kFreeAt = kFullAt + kStages * 8;
  static constexpr int kNextAt = kFreeAt + kStages * 8;
  static constexpr int kBytes = kNextAt + 2 * 4;
  static_assert(kBytes <= (kBlocks == 2 ? 113 : 227) * 1024, "shared memory");
};

// Maps are the tensors that are copied in boxes: the product's rows, and the second product's choices.
struct Maps {
  CUtensorMap rows;
  CUtensorMap tokens;
  uint64_t rows_stay;  // how long L2 is to keep the rows
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Ring is a thread's way through the stages.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

__device__ __forceinline__ int Steps(const MojoMoEArgs& a, Product product) {
  return (static_cast<int>(product == kDown ? a.inner : a.hidden) + kTileDeep - 1) / kTileDeep;
}

// CopyPiece starts a copy of 16 bytes if `is` is true, and zeros the bytes past `bytes`. It has no branch.
__device__ __forceinline__ void CopyPiece(uint32_t to, const void* from, int bytes, bool is) {
  asm volatile(
      "{\n\t"
      ".reg .pred is;\n\t"
      "setp.ne.b32 is, %3, 0;\n\t"
      "@is cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n\t"
      "}" ::"r"(to),
      "l"(from), "r"(bytes), "r"(static_cast<int>(is)));
}

// CopyRows starts the copy of a tile's rows, kTileDeep from step k on. A [depth, rows] tile is four boxes of 32: two
// for each group, with gates and their ups if those are in halves.
template <Product kProduct, bool kInOut>
__device__ __forceinline__ void CopyRows(const MojoMoEArgs& a, uint32_t to, const Maps& maps, uint32_t barrier,
                                         const Place& place, int k) {
  if constexpr (kInOut) {
    const bool halves = kProduct == kGateUp && a.packing == Packing::kHalves;
    for (int box = 0; box < 4; ++box) {
      const int row = halves ? place.row_block * 64 + box / 2 * 32 + box % 2 * static_cast<int>(a.inner)
                             : place.row_block * kTileRows + box * 32;
      CopyBox(to + box * kTurnedBytes, &maps.rows, barrier, row, k * kTileDeep, place.expert, maps.rows_stay);
    }
  } else if (kProduct == kGateUp && a.packing != Packing::kNone) {
    CopyBox(to, &maps.rows, barrier, k * kTileDeep, 0, 0, place.row_block * (kTileRows / 16), place.expert,
            maps.rows_stay);
  } else {
    CopyBox(to, &maps.rows, barrier, k * kTileDeep, place.row_block * kTileRows, place.expert, maps.rows_stay);
  }
}

// LoadGathered loads the tiles of a first product, by all threads that load.
template <int kTokens, bool kInOut>
__device__ __forceinline__ void LoadGathered(const MojoMoEArgs& a, const MoEWork& work, const Maps& maps,
                                             int row_blocks, char* memory) {
  typedef Form<kTokens> F;
  constexpr int kLines = F::kLoaders / 8, kCopies = kTokens / kLines;  // tokens at once, and of a thread
  static_assert(kLines % 8 == 0, "a thread's pieces are swapped alike");
  const uint32_t shared = SharedAddress(memory), full = shared + F::kFullAt, free = shared + F::kFreeAt;
  Place* const places = reinterpret_cast<Place*>(memory + F::kPlacesAt);
  int* const next = reinterpret_cast<int*>(memory + F::kNextAt);
  const int n = threadIdx.x - 2 * kGroup, steps = Steps(a, kGateUp), depth = static_cast<int>(a.hidden);
  const uint4* const tokens = static_cast<const uint4*>(a.x);
  WaitForPrevious();
  LetNextStart();
  const int all = __ldcg(work.plan.tile_count) * row_blocks;
  Ring<F::kStages> ring;
  int turn = 0;
  for (int index = blockIdx.x; index < all; turn ^= 1) {
    const int asked = n == 0 ? atomicAdd(work.plan.begun, 1) + static_cast<int>(gridDim.x) : 0;
    Place place;
    place.Set(Place::Entry(work, index, row_blocks), index, row_blocks, kTokens);
    // In the last line, slots past the tile's choices repeat the last choice; their sums are unused.
    const uint4* from[kCopies];
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int at = min(n / 8 + kLines * i, place.count - 1);
      const int token = __ldcg(work.plan.choice + place.first + at) / static_cast<int>(a.top_k);
      from[i] = tokens + (token * (depth / 8) + n % 8);
    }
    for (int k = 0; k < steps; ++k) {
      const uint32_t stage = shared + ring.stage * F::kStageBytes, filled = full + ring.stage * 8;
      WaitForPhase(free + ring.stage * 8, ring.parity ^ 1);
      if (n == 0) {
        if (k == 0) places[ring.stage] = place;
        ArriveExpecting(filled, kRowBytes);
        CopyRows<kGateUp, kInOut>(a, stage, maps, filled, place, k);
      }
      const uint32_t to = stage + kRowBytes + Swapped(n / 8, n % 8, 8);
      const int bytes = (k * 8 + n % 8) * 8 < depth ? 16 : 0;
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        CopyPiece(to + i * kLines * 128, from[i], bytes, i * kLines < place.count);
        from[i] += kTileDeep / 8;
      }
      ArriveAfterCopies(filled);
      ring.Advance();
    }
    if (n == 0) next[turn] = asked;
    WaitForGroup<F::kLoaders>(1);
    index = next[turn];
  }
  WaitForPhase(free + ring.stage * 8, ring.parity ^ 1);
  if (n == 0) {
    places[ring.stage].count = 0;
    Arrive(full + ring.stage * 8);
  }
  Arrive(full + ring.stage * 8);
}

// LoadSorted loads the tiles of the second product, by one thread. Rows of the first stages are in flight
// before it waits for the activations.
template <int kTokens, bool kInOut>
__device__ __forceinline__ void LoadSorted(const MojoMoEArgs& a, const MoEWork& work, const Maps& maps, int row_blocks,
                                           char* memory) {
  typedef Form<kTokens> F;
  const uint32_t shared = SharedAddress(memory), full = shared + F::kFullAt, free = shared + F::kFreeAt;
  Place* const places = reinterpret_cast<Place*>(memory + F::kPlacesAt);
  const int steps = Steps(a, kDown), all = __ldcg(work.plan.tile_count) * row_blocks;
  Ring<F::kStages> ring;
  bool waited = false;
  for (int index = blockIdx.x; index < all;) {
    Place place;
    place.Set(Place::Entry(work, index, row_blocks), index, row_blocks, kTokens);
    const int boxes = (place.count + kBoxTokens - 1) / kBoxTokens;
    const auto begin = [&](int stage, int k) {
      if (k == 0) places[stage] = place;
      ArriveExpecting(full + stage * 8, kRowBytes + boxes * kBoxTokens * kTileDeep * 2);
      CopyRows<kDown, kInOut>(a, shared + stage * F::kStageBytes, maps, full + stage * 8, place, k);
    };
    int begun = 0;
    if (!waited) {
      for (; begun < steps && begun < F::kStages; ++begun) begin(begun, begun);
      WaitForPrevious();
      LetNextStart();
      waited = true;
    }
    const int asked = atomicAdd(work.plan.begun + 1, 1) + static_cast<int>(gridDim.x);
    for (int k = 0; k < steps; ++k) {
      if (k >= begun) {
        WaitForPhase(free + ring.stage * 8, ring.parity ^ 1);
        begin(ring.stage, k);
      }
      const uint32_t to = shared + ring.stage * F::kStageBytes + kRowBytes;
      for (int i = 0; i < boxes; ++i) {
        CopyBox(to + i * kBoxTokens * kTileDeep * 2, &maps.tokens, full + ring.stage * 8, k * kTileDeep,
                place.first + i * kBoxTokens);
      }
      ring.Advance();
    }
    index = asked;
  }
  if (!waited) {
    WaitForPrevious();
    LetNextStart();
  }
  WaitForPhase(free + ring.stage * 8, ring.parity ^ 1);
  places[ring.stage].count = 0;
  Arrive(full + ring.stage * 8);
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace mojo
