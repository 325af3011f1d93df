// The keys of a sequence of few rows: how they are divided, and how a warp copies them into shared memory.
//
// The keys that a sequence's rows see are cut into leaves, which a warp goes over in order. kFewWarps leaves are a
// node. A result is the sum of leaves in their order for each node, then of nodes in their order. The numbers of leaves
// and nodes follow from the sequence, so that a result never depends on other sequences. Which blocks compute the nodes
// follows from the batch.
#pragma once

#include "attention/cuda/paged_new.cuh"
#include "cuda/mma.cuh"

namespace mojo {
namespace paged {

constexpr int kFewWarps = 4;                      // of a block
constexpr int kBeside = 2;                        // blocks of a multiprocessor
constexpr int kTileRows = 8;                      // rows of a tile
constexpr int kMostTiles = kFewRows / kTileRows;  // of a sequence
constexpr int kLook = 32;       // keys whose blocks a warp looks up at once; leaves are multiples of it
constexpr int kMostNodes = 64;  // of a sequence
constexpr int kMostStages = 3;

// LeafOf is how many keys are a leaf, of all keys. Up to 4,096 keys are at most eight nodes, as a cluster has blocks.
__host__ __device__ constexpr int LeafOf(int keys) {
  constexpr int kLong = 128, kMost = kLong * kFewWarps * kMostNodes;
  return keys <= 1024 ? kLook : keys <= 2048 ? 2 * kLook : keys <= kMost ? kLong : kLong * ((keys + kMost - 1) / kMost);
}

// MostNodes is the most nodes of up to so many keys.
constexpr int MostNodes(size_t keys) {
  if (keys <= 1024) return keys <= 128 ? 1 : static_cast<int>((keys + 127) / 128);
  return keys <= 4096 ? 8 : keys >= 512 * kMostNodes ? kMostNodes : static_cast<int>((keys + 511) / 512);
}

// Leaf is a warp's part of a node, or a part of that.
struct Leaf {
  int node, key, end;

  __device__ __forceinline__ bool Has() const { return key < end; }
};

// Division is the division of a sequence's keys.
struct Division {
  int seen, begin, end, leaf, nodes;  // from seen on keys are seen

  __device__ __forceinline__ Division(const Params& p, const Sequence& s) {
    seen = SeenBy(p, s, 0).begin;
    begin = seen / kLook * kLook;
    end = SeenBy(p, s, s.added - 1).end;
    const int keys = max(0, end - begin);
    leaf = LeafOf(keys);
    nodes = max(1, (keys + leaf * kFewWarps - 1) / (leaf * kFewWarps));
  }
  // Of returns the warp's leaf of a node, which is empty past the last key.
  __device__ __forceinline__ Leaf Of(int node) const {
    const int key = begin + (node * kFewWarps + static_cast<int>(threadIdx.x) / 32) * leaf;
    return {node, key, min(key + leaf, end)};
  }
  // Leaves is how many leaves of a node have keys.
  __device__ __forceinline__ int Leaves(int node) const {
    return min(kFewWarps, (max(0, end - begin) - node * kFewWarps * leaf + leaf - 1) / leaf);
  }
};

// PieceAt is the place of a 16-byte piece of a row, in bytes. Pieces are swizzled so that the eight that a matrix load
// reads at once are in different banks.
template <int kPieces>
__device__ __forceinline__ int PieceAt(int row, int piece) {
  static_assert(kPieces >= 4, "rows of 64 bytes");
  return (row * kPieces + (piece ^ (kPieces == 4 ? row >> 1 & 3 : row & 7))) * 16;
}

// PoolStage is the layout of a warp's stage: rows of keys, rows of values, the places of the keys (with codes: their
// blocks), and the scales of their keys and values.
template <class C, int kWidth, int kValues>
struct PoolStage {
  static constexpr int kSize = sizeof(C), kKeys = kIsCode<C> || kWidth * kSize <= 128 ? 32 : 16;
  static constexpr int kKeyPieces = kWidth * kSize / 16, kValuePieces = kValues * kSize / 16;
  static constexpr int kValuesAt = kKeys * kWidth * kSize, kPlacesAt = kValuesAt + kKeys * kValues * kSize;
  static constexpr int kScalesAt = kPlacesAt + kKeys * 4, kEnd = kScalesAt + (kIsCode<C> ? kKeys * 8 : 0);
  static constexpr int kBytes = (kEnd + 15) / 16 * 16;
  static_assert(kPlacesAt >= kTileRows * kValues * 4, "room for a warp's sums");
};

// AddedPlace marks the place of a new row by its token's number, beyond the places of the pool and -1, which marks no
// row; and of such a place it is the token.
__device__ __forceinline__ int AddedPlace(int token) { return -2 - token; }

// Source is where a lane's pieces of rows of keys, or values, are in the pool.
struct Source {
  const char* pool;
  uint32_t step;  // from a row to the next one, in bytes
  int left;       // bytes of a row from the piece on

  // Start starts the copy of a row's piece, or writes zeros for place -1. It leaves out new rows. Rows of narrow pools
  // have an alignment of eight bytes, and none of them is new.
  __device__ __forceinline__ void Start(uint32_t to, int place, bool narrow) const {
    const char* from;  // is not read for places below 0; the compiler would multiply 64-bit numbers
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(from) : "r"(place), "r"(step), "l"(pool));
    if (!narrow) {
      asm volatile(
          "{\n.reg .pred old;\nsetp.ge.s32 old, %3, -1;\n"
          "@old cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n}" ::"r"(to),
          "l"(from), "r"(place >= 0 && left > 0 ? 16 : 0), "r"(place));
      return;
    }
#pragma unroll
    for (int half = 0; half < 16; half += 8) {
      if (place >= 0 && left > half) {
        CopyFew<8>(to + half, from + half);
      } else {
        asm volatile("st.shared.v2.u32 [%0], {%1, %1};" ::"r"(to + half), "r"(0) : "memory");
      }
    }
  }
};

// CopyRows starts the copies of kKeys rows of each source, from apart bytes of shared memory on. The places are those
// of lanes from first_lane on.
template <int kPieces, int kKeys, int kSources>
__device__ __forceinline__ void CopyRows(uint32_t to, int apart, const Source (&from)[kSources], bool narrow, int place,
                                         int first_lane) {
  constexpr int kAtOnce = 32 / kPieces;
  const int lane = threadIdx.x % 32, first = lane / kPieces, swizzled = PieceAt<kPieces>(first, lane % kPieces);
#pragma unroll 4
  for (int i = 0; i < kKeys; i += kAtOnce) {
    const int n = __shfl_sync(0xffffffffu, place, first_lane + i + first);
    const uint32_t there = to + (swizzled ^ (kPieces == 4 ? i >> 1 & 3 : i & 7) * 16) + i * kPieces * 16;
#pragma unroll
    for (int k = 0; k < kSources; ++k) from[k].Start(there + k * apart, n, narrow);
  }
}

// PoolReader copies a warp's leaves into its ring of stages, in their order.
template <class T, class C, int kWidth, int kValues>
struct PoolReader {
  typedef PoolStage<C, kWidth, kValues> S;
  const Params& p;
  const Sequence& s;
  const Division& keys;
  const NewRows& added;
  char* const ring;
  const int key_head, channel, step;  // nodes from one of a block to its next one
  Leaf next;
  int in, place, entry;  // the next stage; of the lane's key: its place, and the block of the one kLook keys later

  __device__ __forceinline__ PoolReader(const Params& p, const Sequence& s, const Division& keys, const NewRows& added,
                                        char* ring, int key_head, int channel, int first, int step)
      : p(p),
        s(s),
        keys(keys),
        added(added),
        ring(ring),
        key_head(key_head),
        channel(channel),
        step(step),
        next(keys.Of(first)),
        in(0),
        place(-1),
        entry(0) {}

  __device__ __forceinline__ bool IsNarrow() const {
    return kIsCode<C> && (p.width % 16 != 0 || p.value_width % 16 != 0);
  }
  // Ask reads the table for the lane's key of a leaf.
  __device__ __forceinline__ void Ask(const Leaf& leaf) {
    const int j = leaf.key + static_cast<int>(threadIdx.x) % 32;
    if (j < leaf.end) {
      entry = __ldg(p.table + static_cast<size_t>(s.number) * p.columns + ColumnOf(p, j));
    }
  }
  // PlaceOf is the place of the lane's key. A key that is new is read from the token, while the pool is written.
  __device__ __forceinline__ int PlaceOf(const Leaf& leaf) const {
    const int j = leaf.key + static_cast<int>(threadIdx.x) % 32, block = static_cast<int>(p.block);
    if (j < keys.seen || j >= leaf.end) return -1;
    const int at = min(max(entry, 0), static_cast<int>(p.blocks) - 1) * block + (j - ColumnOf(p, j) * block);
    if (!kIsCode<C> && p.concurrent && j >= s.past) {
      const int token = s.token + j - s.past;
      if (p.slots == nullptr || __ldg(p.slots + token) == at) return AddedPlace(token);
    }
    return at;
  }

  // SourceOf is the source of keys, or values, from a channel on. Without the asm the compiler makes the address again
  // for each row.
  template <int kPieces>
  __device__ __forceinline__ Source SourceOf(const void* pool, size_t width, int first) const {
    const int piece = static_cast<int>(threadIdx.x) % kPieces * 16;
    const char* at = static_cast<const char*>(pool) + (key_head * width + first) * S::kSize + piece;
    asm volatile("" : "+l"(at));
    return {at, static_cast<uint32_t>(p.key_heads * width * S::kSize),
            (static_cast<int>(width) - first) * S::kSize - piece};
  }
  // ForNew calls each(at, from, has) for the pieces of a token's key and value, which are a row of a stage: their place
  // in the stage, their address, and whether the row is that wide.
  template <class Each>
  __device__ __forceinline__ void ForNew(int row, int token, const Each& each) const {
    const size_t at = static_cast<size_t>(token) * p.key_heads + key_head;
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < S::kKeyPieces + S::kValuePieces; i += 32) {
      const bool of_keys = i < S::kKeyPieces;
      const int piece = of_keys ? i : i - S::kKeyPieces, first = of_keys ? piece * 8 : channel + piece * 8;
      const size_t width = of_keys ? p.width : p.value_width;
      each(of_keys ? PieceAt<S::kKeyPieces>(row, piece) : S::kValuesAt + PieceAt<S::kValuePieces>(row, piece),
           static_cast<const T*>(of_keys ? p.k : p.v) + at * width + first, first < static_cast<int>(width));
    }
  }
  __device__ __forceinline__ void CopyStage(char* stage, int first_lane) const {
    const uint32_t to = SharedAddress(stage);
    const Source from[] = {SourceOf<S::kKeyPieces>(p.key_cache_out, p.width, 0),
                           SourceOf<S::kValuePieces>(p.value_cache_out, p.value_width, channel)};
    if constexpr (S::kKeyPieces == S::kValuePieces) {
      CopyRows<S::kKeyPieces, S::kKeys>(to, S::kValuesAt, from, IsNarrow(), place, first_lane);
    } else {
      const Source keys_from[] = {from[0]}, values_from[] = {from[1]};
      CopyRows<S::kKeyPieces, S::kKeys>(to, 0, keys_from, IsNarrow(), place, first_lane);
      CopyRows<S::kValuePieces, S::kKeys>(to + S::kValuesAt, 0, values_from, IsNarrow(), place, first_lane);
    }
    if constexpr (!kIsCode<C>) {
      unsigned rows = __ballot_sync(0xffffffffu, place < -1);
#pragma unroll 1
      for (; rows != 0; rows &= rows - 1) {
        const int owner = __ffs(rows) - 1, token = AddedPlace(__shfl_sync(0xffffffffu, place, owner));
        if (owner / S::kKeys != first_lane / S::kKeys) continue;
        ForNew(owner - first_lane, token, [&](int at, const T* from, bool has) { Copy(to + at, from, has); });
      }
    }
  }

  // Start starts the copies of the next stage, as a group, which is empty behind the last one.
  __device__ __forceinline__ void Start() {
    if (next.Has()) {
      const int lane = threadIdx.x % 32, first_lane = next.key % kLook;
      if (first_lane == 0) {
        place = PlaceOf(next);
        Leaf later{next.node, next.key + kLook, next.end};
        if (!later.Has()) later = keys.Of(next.node + step);
        Ask(later);
      }
      char* const stage = ring + in * S::kBytes;
      in = in + 1 == p.stages ? 0 : in + 1;
      CopyStage(stage, first_lane);
      if constexpr (kIsCode<C>) {
        const int block = place < 0 ? -1 : ColumnOf(p, place);
        float* const scales = reinterpret_cast<float*>(stage + S::kScalesAt) + lane;
        reinterpret_cast<int*>(stage + S::kPlacesAt)[lane] = block;
        if (block >= 0) {
          const size_t at = static_cast<size_t>(block) * p.key_heads + key_head;
          CopyFew<4>(SharedAddress(scales), p.key_scale_out + at);
          CopyFew<4>(SharedAddress(scales + S::kKeys), p.value_scale_out + at);
        } else {
          scales[0] = scales[S::kKeys] = 0;
        }
      } else if (p.concurrent) {
        if (lane / S::kKeys == first_lane / S::kKeys) {
          reinterpret_cast<int*>(stage + S::kPlacesAt)[lane - first_lane] = place;
        }
      }
      next.key += S::kKeys;
      if (!next.Has()) next = keys.Of(next.node + step);
    }
    EndGroup();
  }

  // Again reads the rows of codes at places.
  template <int kPieces>
  __device__ __forceinline__ void Again(char* to, const void* pool, size_t width, int first, int places) const {
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < S::kKeys * kPieces; i += 32) {
      const int row = i / kPieces, piece = i % kPieces, n = __shfl_sync(0xffffffffu, places, row);
      if (n < 0 || first + piece * 16 >= static_cast<int>(width)) continue;
      const char* const from = static_cast<const char*>(pool) + (n * p.key_heads + key_head) * width + first;
      *reinterpret_cast<uint4*>(to + PieceAt<kPieces>(row, piece)) =
          __ldcg(reinterpret_cast<const uint4*>(from + piece * 16));
    }
    __syncwarp();
  }

  // Mend reads rows of a stage from key on again that are being written: new rows from the tokens, codes from the pool
  // once they are written.
  __device__ __forceinline__ void Mend(char* stage, const Leaf& leaf) {
    const int lane = threadIdx.x % 32;
    const int own = reinterpret_cast<const int*>(stage + S::kPlacesAt)[lane % S::kKeys];
    unsigned hits = __ballot_sync(0xffffffffu, lane < S::kKeys && own >= 0 && added.MayHave(max(own, 0)));
    if (hits == 0) return;
    if constexpr (kIsCode<C>) {
      WaitForPrevious();
      const int j = leaf.key + lane;
      const int again = lane < S::kKeys && j >= keys.seen && j < leaf.end ? static_cast<int>(Place(p, s, j)) : -1;
      Again<S::kKeyPieces>(stage, p.key_cache_out, p.width, 0, again);
      Again<S::kValuePieces>(stage + S::kValuesAt, p.value_cache_out, p.value_width, channel, again);
      if (again >= 0) {
        const size_t at = static_cast<size_t>(own) * p.key_heads + key_head;
        float* const scales = reinterpret_cast<float*>(stage + S::kScalesAt) + lane;
        scales[0] = __ldcg(p.key_scale_out + at), scales[S::kKeys] = __ldcg(p.value_scale_out + at);
      }
    } else {
#pragma unroll 1
      for (; hits != 0; hits &= hits - 1) {
        const int row = __ffs(hits) - 1, token = added.TokenAt(p, __shfl_sync(0xffffffffu, own, row));
        if (token < 0) continue;
        ForNew(row, token, [&](int at, const T* from, bool has) {
          if (has) *reinterpret_cast<uint4*>(stage + at) = *reinterpret_cast<const uint4*>(from);
        });
      }
    }
    __syncwarp();
  }
};

}  // namespace paged
}  // namespace mojo
