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

  // Divide sets what the heads and the scores decide: group heads share the keys of each pair.
  void Divide(size_t group, size_t pairs, float scale, float softcap) {
    members = group <= 16 ? static_cast<int>(group) : 1;
    queries = kRows / members;
    parts = static_cast<int>(group) / members;
    columns = static_cast<int>(pairs) * parts;
    factor = (softcap > 0 ? softcap : scale) * kLog2E;
    bend = softcap > 0 ? scale / softcap : 0;
  }
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
typedef Form<64, 64, 128, 4, 2> Form64;
typedef Form<128, 128, 128, 2, 2> Form128;
typedef Form<192, 128, 128, 2, 1> Form192;
typedef Form<256, 256, 80, 2, 1> Form256;

// HasForm reports whether there is a form for keys and values of these widths.
inline bool HasForm(size_t width, size_t value_width) {
  return (width == value_width && (width == 64 || width == 128 || width == 256)) ||
         (width == 192 && value_width == 128);
}

// OfForm calls f with the form for keys of this width. HasForm must have reported that there is one.
template <class F>
cudaError_t OfForm(size_t width, const F& f) {
  return width == 64 ? f(Form64()) : width == 128 ? f(Form128()) : width == 192 ? f(Form192()) : f(Form256());
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Ring finds the stage of the n-th item in a ring of this size, and the parity of its phase.
template <int kStages>
struct Ring {
  static_assert((kStages & (kStages - 1)) == 0, "a remainder is some bits");
  static __device__ __forceinline__ int Stage(int n) { return n % kStages; }
  static __device__ __forceinline__ uint32_t Parity(int n) { return n / kStages % 2; }
};

// TileOf is a block's tile of a round. Every other round goes backward, so that no block has the longest of all.
__device__ __forceinline__ int TileOf(int round) {
  return static_cast<int>(round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x));
}

// Tile is the rows of a block. Row r is the tile's query r / members, of head r % members.
template <class F>
struct Tile {
  typedef MojoAttentionArgs Args;
  static constexpr int kLoaders = 1, kFillers = 1;
  Pair pair;
  int member;  // the first of the pair's heads
  int query;   // the first one

  // Has reports whether the block has a tile in a round, and in each round before.
  static __device__ __forceinline__ bool Has(const Work& work, const char*, int round) {
    return TileOf(round) < work.all;
  }
  __device__ __forceinline__ Tile(const Args& a, const Work& work, const char*, int round)
      : Tile(a, work, TileOf(round)) {}

  // See are the keys that a query sees. Tiles are the key tiles that the rows see.
  __device__ __forceinline__ Span See(const Args& a, int i) const { return Seen(a, pair, i); }
  __device__ __forceinline__ Span Tiles(const Args& a, const Work& work) const {
    const int last = min(query + work.queries, static_cast<int>(a.queries)) - 1;
    const int begin = Seen(a, pair, query).begin / F::kKeys;
    return {begin, max((Seen(a, pair, last).end + F::kKeys - 1) / F::kKeys, begin)};
  }
  // MayHoldJunk reports whether rows of key tiles outside of Filled may hold anything.
  __device__ __forceinline__ bool MayHoldJunk(const Args& a) const { return a.past_lengths != nullptr; }
  __device__ __forceinline__ Span Filled() const { return {0, pair.length}; }
  // IsMasked reports whether bits say which keys are seen.
  __device__ __forceinline__ bool IsMasked(const Args& a) const { return a.key_valid != nullptr; }

  __device__ __forceinline__ int Queries(const Args& a) const { return static_cast<int>(a.queries); }
  __device__ __forceinline__ int Head(const Args& a, int of_tile) const {
    return pair.HeadOfMember(a, member + of_tile);
  }
  // Result is the row of y of a head's query.
  template <class T>
  __device__ __forceinline__ T* Result(const Args& a, int head, int i) const {
    return static_cast<T*>(a.y) + pair.batch * a.y_steps.batch + head * a.y_steps.head + i * a.y_steps.row;
  }
  // Mean is the row for queries that see no key, or null for zeros.
  __device__ __forceinline__ const float* Mean(const Work& work) const {
    return work.means == nullptr ? nullptr : work.means + pair.number * F::kOut;
  }

 private:
  __device__ __forceinline__ Tile(const Args& a, const Work& work, int index)
      : Tile(a, work, index, index / work.columns) {}
  __device__ __forceinline__ Tile(const Args& a, const Work& work, int index, int line)
      : Tile(a, work, line, index - line * work.columns, work.columns / work.parts) {}
  __device__ __forceinline__ Tile(const Args& a, const Work& work, int line, int column, int pairs)
      : pair(a, work.parts > 1 ? column % pairs : column), member(work.parts > 1 ? column / pairs : 0) {
    query = (a.causal ? work.lines - 1 - line : line) * work.queries;
  }
};

// Load is the warp that copies all data of the block.
template <class F>
__device__ __forceinline__ void Load(const MojoAttentionArgs& a, const Work& work, char* memory) {
  typedef Ring<F::kStages> Keys;
  typedef Ring<F::kRowStages> Rows;
  const uint32_t shared = SharedAddress(memory);
  const int lane = threadIdx.x % 32;
  int at = 0;  // tiles of keys before
  for (int round = 0; Tile<F>::Has(work, memory, round); ++round) {
    const Tile<F> tile(a, work, memory, round);
    const Span seen = tile.Tiles(a, work);
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
