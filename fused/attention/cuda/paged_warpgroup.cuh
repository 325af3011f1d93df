// The tiles of PagedAttention's prompts on compute capability 9.0, and the warps that copy them. attention_tile.cuh
// describes the rest of the block, which is Attention's.
//
// Sequences have any lengths, so tiles are found on the device: the copying warps find the rows of the block's tile of
// a round, and pass them to the warpgroups with the queries. A tile of keys is copied in boxes, each of rows of one
// block of the pool, and only boxes with keys that the rows see: the rest of the tile is junk.
#pragma once

#include "attention/cuda/attention_warpgroup.cuh"
#include "attention/cuda/paged_attention.cuh"

namespace mojo {
namespace paged {

// TileWork is the kernel's parameters besides the arguments.
struct TileWork : warpgroup::Work {
  int rows;  // of a box of keys: a divisor of a block of the pool, and of a tile of keys
};

// kSlotBytes has room for a PromptTile.
constexpr int kSlotBytes = 64;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// PromptTile is the rows of a block, as warpgroup::Tile is. It has no queries after the last tile.
template <class F>
struct PromptTile {
  typedef Params Args;
  static constexpr int kLoaders = 4, kFillers = 2;
  Sequence s;
  Span seen;  // the keys that the rows see
  int key_head;
  int member;  // the first of the heads
  int query;   // the first one
  int queries;

  // FindTile returns the tile of a number. All lanes of a warp take part.
  static __device__ __forceinline__ PromptTile FindTile(const Params& p, const TileWork& work, int number) {
    const int line = number / work.columns, column = number - line * work.columns;
    const int rows = work.queries * p.group, pairs = static_cast<int>(p.key_heads);
    const Rows found = FindRows(p, line, rows, column % pairs);
    PromptTile tile{found.s, {0, 0}, found.key_head, column / pairs, 0, 0};
    if (found.count == 0) return tile;
    tile.queries = found.s.added;
    // The last rows, which see the most keys, come first.
    tile.query = ((found.count + rows - 1) / rows - 1 - found.first / rows) * work.queries;
    const int last = min(tile.query + work.queries, tile.queries) - 1;
    tile.seen = {SeenBy(p, tile.s, tile.query).begin, SeenBy(p, tile.s, last).end};
    return tile;
  }

  // Slot is where the tile of a round is passed. A round's slot is used again when all warps have finished with it: the
  // first copying warp is at most kRowStages rounds ahead of the products of scores, and a warp ends a round before the
  // next.
  static __device__ __forceinline__ PromptTile* Slot(char* memory, int round) {
    static_assert(sizeof(PromptTile) <= kSlotBytes, "");
    return reinterpret_cast<PromptTile*>(memory + F::kBytes) + round % kSlots;
  }
  static constexpr int kSlots = 2 * F::kRowStages;

  static __device__ __forceinline__ bool Has(const warpgroup::Work&, char* memory, int round) {
    typedef warpgroup::Ring<F::kRowStages> Ring;
    WaitForPhase(SharedAddress(memory) + F::kRowsFull + Ring::Stage(round) * 8, Ring::Parity(round));
    return Slot(memory, round)->queries > 0;
  }
  __device__ __forceinline__ PromptTile(const Params&, const warpgroup::Work&, char* memory, int round)
      : PromptTile(*Slot(memory, round)) {}
  __device__ __forceinline__ PromptTile(const Sequence& s, Span seen, int key_head, int member, int query, int queries)
      : s(s), seen(seen), key_head(key_head), member(member), query(query), queries(queries) {}

  __device__ __forceinline__ Span See(const Params& p, int i) const { return SeenBy(p, s, i); }
  __device__ __forceinline__ Span Tiles(const Params&, const warpgroup::Work&) const {
    const int begin = seen.begin / F::kKeys;
    return {begin, max((seen.end + F::kKeys - 1) / F::kKeys, begin)};
  }
  __device__ __forceinline__ bool MayHoldJunk(const Params&) const { return true; }
  __device__ __forceinline__ Span Filled() const { return seen; }
  __device__ __forceinline__ bool IsMasked(const Params&) const { return false; }
  __device__ __forceinline__ int Queries(const Params&) const { return queries; }
  __device__ __forceinline__ int Head(const Params& p, int of_tile) const {
    return HeadOf(p, key_head, member + of_tile);
  }
  template <class T>
  __device__ __forceinline__ T* Result(const Params& p, int head, int i) const {
    return static_cast<T*>(p.y) + (static_cast<size_t>(s.token + i) * p.heads + head) * p.value_width;
  }
  __device__ __forceinline__ const float* Mean(const warpgroup::Work&) const { return nullptr; }
};

// Boxes is a warp's share of a tile of keys, or of values: every other box. In lane n, row is that of box n in the
// pool, or -1 if no row of the tile sees it or it is another warp's.
struct Boxes {
  int row, half, key_head;
  bool of_keys;
  int to;         // the stage, an offset in shared memory
  uint32_t full;  // its barrier
};

// CopyBoxes fills a stage by tensor map copies.
template <class F>
struct CopyBoxes {
  const TileWork& work;
  uint32_t shared;

  // Begin begins a tile of rows. row is that of the lane's box of its first tile of keys.
  __device__ __forceinline__ void Begin(bool, int, int, int) const {}
  // Fill fills a stage once wait returns. next is the row of the lane's box of the next tile of keys, or -1.
  template <int kWidth, class Wait>
  __device__ __forceinline__ void Fill(const Boxes& b, int, const Wait& wait) const {
    const int lane = threadIdx.x % 32, boxes = __popc(__ballot_sync(~0u, b.row >= 0));
    wait();
    if (lane == 0) ArriveExpecting(b.full, boxes * work.rows * kWidth * 2);
    if (b.row >= 0) {
#pragma unroll
      for (int part = 0; part < kWidth / 64; ++part) {
        CopyBox(shared + b.to + (part * F::kKeys + lane * work.rows) * 128, b.of_keys ? &work.k : &work.v, b.full,
                part * 64, b.row, b.key_head, kStayNormal);
      }
    }
    __syncwarp();
  }
};

// LoadPrompts is one of the warps that fill the block's stages: every other box of keys, or of values. With blocks of
// 16 rows one warp for all boxes would take longer than the products: 76 us instead of 62 for 512 tokens after 3,584
// (32 heads on 8 of 128, H200).
template <class F, class Filler>
__device__ __forceinline__ void LoadPrompts(const Params& p, const TileWork& work, char* memory, Filler filler) {
  typedef warpgroup::Ring<F::kStages> Keys;
  typedef warpgroup::Ring<F::kRowStages> Ring;
  const uint32_t shared = SharedAddress(memory);
  const int lane = threadIdx.x % 32, warp = __shfl_sync(~0u, threadIdx.x % warpgroup::kGroup / 32, 0);
  const bool of_keys = warp % 2 == 0;
  const int half = warp / 2;
  int at = 0;  // tiles of keys before
  for (int round = 0;; ++round) {
    const PromptTile<F> tile = PromptTile<F>::FindTile(p, work, warpgroup::TileOf(round));
    if (warp == 0 && lane == 0) {
      const int stage = Ring::Stage(round);
      WaitForPhase(shared + F::kRowsFree + stage * 8, Ring::Parity(round) ^ 1);
      *PromptTile<F>::Slot(memory, round) = tile;
      const uint32_t full = shared + F::kRowsFull + stage * 8;
      if (tile.queries == 0) {
        Arrive(full);
      } else {
        ArriveExpecting(full, work.queries * work.members * F::kWidth * 2);
        for (int part = 0; part < F::kWidth / 64; ++part) {
          CopyBox(shared + stage * F::kRowBytes + part * warpgroup::kRows * 128, &work.q, full, part * 64, tile.member,
                  tile.s.token + tile.query, tile.key_head, 0, kStayNormal);
        }
      }
    }
    if (tile.queries == 0) break;
    // FindBox returns the row of the pool of the lane's box of a tile of keys, or -1 if it is not the warp's.
    const auto find_box = [&](int n) {
      const int key = n * F::kKeys + lane * work.rows;
      const bool is_seen = lane * work.rows < F::kKeys && key < tile.seen.end && key + work.rows > tile.seen.begin;
      return is_seen && lane % 2 == half ? static_cast<int>(Place(p, tile.s, key)) : -1;
    };
    const Span tiles = tile.Tiles(p, work);
    int row = find_box(tiles.end - 1);
    filler.Begin(of_keys, half, tile.key_head, row);
#pragma unroll 1
    for (int n = tiles.end - 1; n >= tiles.begin; --n, ++at) {
      const int next = n > tiles.begin ? find_box(n - 1) : -1, stage = Keys::Stage(at);
      const auto fill = [&](auto width, int to, int full, int free) {
        constexpr int kWidth = decltype(width)::value;
        const Boxes boxes{row, half, tile.key_head, of_keys, to, shared + full + stage * 8};
        filler.template Fill<kWidth>(boxes, next,
                                     [&] { WaitForPhase(shared + free + stage * 8, Keys::Parity(at) ^ 1); });
      };
      if (of_keys) {
        fill(std::integral_constant<int, F::kWidth>(), F::kKeysAt + stage * F::kKeyBytes, F::kKeysFull, F::kKeysFree);
      } else {
        fill(std::integral_constant<int, F::kOut>(), F::kValuesAt + stage * F::kValueBytes, F::kValuesFull,
             F::kValuesFree);
      }
      row = next;
    }
  }
  LetNextStart();
}

#endif

}  // namespace paged
}  // namespace mojo
