// Attention of many queries on compute capability 9.0: how the work is divided, and the warp that copies. The schedule
// follows Shah et al., "FlashAttention-3", 2024: a producer warp, two consumer warpgroups, exponents under products.
//
// Blocks are persistent and take tiles in turn, the longest first. The 128 rows of a tile are some queries of the heads
// that share keys, so that few keys are hidden from some of them. One warp copies the rows, then keys and values, tile
// by tile from the last one that a row sees, through a ring of stages. Each of two warpgroups has 64 rows; their
// scores, exponents and sums stay in registers. The exponents of a key tile are computed while the values of the tile
// before are multiplied, and the warpgroups begin products in turn, so that the exponents of one overlap the products
// of the other. The floor is rows * keys seen * (width + value_width) multiply-adds on the tensor cores.
#pragma once

#include "attention/cuda/attention.cuh"
#include "cuda/hopper.cuh"

namespace mojo {
namespace warpgroup {

constexpr int kGroup = 128;     // threads of a warpgroup
constexpr int kGroups = 2;      // warpgroups that multiply
constexpr int kGroupRows = 64;  // rows of a warpgroup
constexpr int kRows = kGroups * kGroupRows;
constexpr int kThreads = (kGroups + 1) * kGroup;

// Work is the kernel's parameters besides the arguments.
struct Work {
  CUtensorMap q, k, v;
  int members;   // heads whose rows are in a tile, all that share keys or one
  int queries;   // of a tile
  int parts;     // tiles for the heads that share keys
  int columns;   // tiles of the same queries
  int lines;     // tiles of the same heads
  int all;       // tiles in all
  float factor;  // of the scores, for PowerOfTwo
  float bend;    // softcap: of the scores, for their tanh; else 0
  float* means;  // [pairs, value_width], for rows that see no key; null: zeros
};

// Form is the layout of a block for heads of kWidth numbers.
template <int kKeyWidth, int kValueWidth, int kTileKeys, int kRing, int kRowRing>
struct Form {
  static constexpr int kWidth = kKeyWidth, kOut = kValueWidth, kKeys = kTileKeys, kStages = kRing,
                       kRowStages = kRowRing;
  static constexpr int kRowBytes = kRows * kWidth * 2, kKeyBytes = kKeys * kWidth * 2, kValueBytes = kKeys * kOut * 2;
  static constexpr int kWords = (kKeys + 31) / 32;  // of bits for keys
  static constexpr int kKeysAt = kRowStages * kRowBytes, kValuesAt = kKeysAt + kStages * kKeyBytes,
                       kValidAt = kValuesAt + kStages * kValueBytes, kRowsFull = kValidAt + kStages * 16,
                       kRowsFree = kRowsFull + kRowStages * 8, kKeysFull = kRowsFree + kRowStages * 8,
                       kKeysFree = kKeysFull + kStages * 8, kValuesFull = kKeysFree + kStages * 8,
                       kValuesFree = kValuesFull + kStages * 8, kBytes = kValuesFree + kStages * 8;
  static_assert(kKeys % 16 == 0 && kWords <= 4 && kBytes <= 227 * 1024, "a multiplication's depth; shared memory");
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Ring finds the stage of the n-th item in a ring of this size, and the parity of its phase.
template <int kStages>
struct Ring {
  static_assert((kStages & (kStages - 1)) == 0, "a remainder is some bits");
  static __device__ __forceinline__ int Stage(int n) { return n % kStages; }
  static __device__ __forceinline__ uint32_t Parity(int n) { return n / kStages % 2; }
};

// Tile is the rows of a block. Row r is the tile's query r / members, of head r % members.
struct Tile {
  Pair pair;
  int member;  // the first of the pair's heads
  int query;   // the first one

  __device__ __forceinline__ Tile(const MojoAttentionArgs& a, const Work& work, int index)
      : Tile(a, work, index, index / work.columns) {}
  // Tiles are the key tiles that the rows see.
  template <class F>
  __device__ __forceinline__ Span Tiles(const MojoAttentionArgs& a, const Work& work) const {
    const int last = min(query + work.queries, static_cast<int>(a.queries)) - 1;
    const int begin = Seen(a, pair, query).begin / F::kKeys;
    return {begin, max((Seen(a, pair, last).end + F::kKeys - 1) / F::kKeys, begin)};
  }

 private:
  __device__ __forceinline__ Tile(const MojoAttentionArgs& a, const Work& work, int index, int line)
      : Tile(a, work, line, index - line * work.columns, work.columns / work.parts) {}
  __device__ __forceinline__ Tile(const MojoAttentionArgs& a, const Work& work, int line, int column, int pairs)
      : pair(a, work.parts > 1 ? column % pairs : column), member(work.parts > 1 ? column / pairs : 0) {
    query = (a.causal ? work.lines - 1 - line : line) * work.queries;
  }
};

// TileOf is a block's tile of a round. Every other round goes backward, so that no block has the longest of all.
__device__ __forceinline__ int TileOf(int round) {
  return static_cast<int>(round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x));
}

// Load is the warp that copies all data of the block.
template <class F>
__device__ __forceinline__ void Load(const MojoAttentionArgs& a, const Work& work, char* memory) {
  typedef Ring<F::kStages> Keys;
  typedef Ring<F::kRowStages> Rows;
  const uint32_t shared = SharedAddress(memory);
  const int lane = threadIdx.x % 32;
  int at = 0;  // tiles of keys before
  for (int round = 0; round * static_cast<int>(gridDim.x) < work.all; ++round) {
    const int index = TileOf(round);
    if (index >= work.all) continue;
    const Tile tile(a, work, index);
    const Span seen = tile.Tiles<F>(a, work);
    const auto load_keys = [&](int n, int at) {
      const int stage = Keys::Stage(at);
      uint32_t bits[F::kWords];
      if (a.key_valid != nullptr) {
#pragma unroll
        for (int w = 0; w < F::kWords; ++w) {
          const int key = n * F::kKeys + w * 32 + lane;
          bits[w] = __ballot_sync(~0u, key < tile.pair.length && Valid(a, tile.pair, key));
        }
      }
      if (lane != 0) return;
      WaitForPhase(shared + F::kKeysFree + stage * 8, Keys::Parity(at) ^ 1);
      if (a.key_valid != nullptr) {
        uint32_t* const to = reinterpret_cast<uint32_t*>(memory + F::kValidAt + stage * 16);
#pragma unroll
        for (int w = 0; w < F::kWords; ++w) to[w] = bits[w];
      }
      const uint32_t full = shared + F::kKeysFull + stage * 8;
      ArriveExpecting(full, F::kKeyBytes);
      CopyBox(shared + F::kKeysAt + stage * F::kKeyBytes, &work.k, full, 0, n * F::kKeys, 0, tile.pair.head,
              tile.pair.batch, kStayNormal);
    };
    const auto load_values = [&](int n, int at) {
      if (lane != 0) return;
      const int stage = Keys::Stage(at);
      WaitForPhase(shared + F::kValuesFree + stage * 8, Keys::Parity(at) ^ 1);
      const uint32_t full = shared + F::kValuesFull + stage * 8;
      ArriveExpecting(full, F::kValueBytes);
      CopyBox(shared + F::kValuesAt + stage * F::kValueBytes, &work.v, full, 0, n * F::kKeys, 0, tile.pair.head,
              tile.pair.batch, kStayNormal);
    };
    if (lane == 0) {
      const int stage = Rows::Stage(round);
      WaitForPhase(shared + F::kRowsFree + stage * 8, Rows::Parity(round) ^ 1);
      const uint32_t full = shared + F::kRowsFull + stage * 8;
      ArriveExpecting(full, work.queries * work.members * F::kWidth * 2);
      for (int part = 0; part < F::kWidth / 64; ++part) {
        CopyBox(shared + stage * F::kRowBytes + part * kRows * 128, &work.q, full, part * 64, tile.member, tile.query,
                tile.pair.head, tile.pair.batch, kStayNormal);
      }
    }
    if (seen.begin == seen.end) continue;
    load_keys(seen.end - 1, at);
#pragma unroll 1
    for (int n = seen.end - 2; n >= seen.begin; --n, ++at) {
      load_keys(n, at + 1);
      load_values(n + 1, at);
    }
    load_values(seen.begin, at++);
  }
  LetNextStart();
}

#endif

}  // namespace warpgroup
}  // namespace mojo
