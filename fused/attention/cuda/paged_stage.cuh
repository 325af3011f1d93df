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
constexpr int kTileRows = 8;                      // rows of a tile
constexpr int kMostTiles = kFewRows / kTileRows;  // of a sequence
constexpr int kLook = 32;       // keys whose blocks a warp looks up at once; leaves are multiples of it
constexpr int kMostNodes = 64;  // of a sequence
constexpr int kMostStages = 3;

// MostBeside is how many blocks of a multiprocessor have enough registers. Three of them have kFewBytes of shared
// memory each; see DivideFew.
constexpr int MostBeside(bool codes, size_t width) { return codes || width > 128 ? 2 : 3; }
constexpr int kFewBytes = 72 << 10, kFewKeys = 128;

// LeafOf is how many keys are a leaf, of all keys: a power of two if these are at most kMostLong. Up to 4,096 keys are
// at most eight nodes, as a cluster has blocks.
constexpr int kLong = 128, kMostLong = kLong * kFewWarps * kMostNodes;
__host__ __device__ constexpr int LeafOf(int keys) {
  return keys <= 1024        ? kLook
         : keys <= 2048      ? 2 * kLook
         : keys <= kMostLong ? kLong
                             : kLong * ((keys + kMostLong - 1) / kMostLong);
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
    const int node = leaf * kFewWarps, up = keys + node - 1;
    nodes = max(1, keys <= kMostLong ? up >> (31 - __clz(node)) : up / node);
  }
  // Of returns the warp's leaf of a node, which is empty past the last key.
  __device__ __forceinline__ Leaf Of(int node) const {
    const int key = begin + (node * kFewWarps + static_cast<int>(threadIdx.x) / 32) * leaf;
    return {node, key, min(key + leaf, end)};
  }
  // Leaves is how many leaves of a node have keys.
  __device__ __forceinline__ int Leaves(int node) const {
    const int keys = end - begin - node * kFewWarps * leaf;
    int count = 0;
#pragma unroll
    for (int w = 0; w < kFewWarps; ++w) count += keys > w * leaf;
    return count;
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

// RowAddress is where a key and its value are in device memory, from the first channel that is copied. Null is a row
// of zeros.
struct alignas(16) RowAddress {
  const char *key, *value;
};

// StartPiece starts the copy of 16 bytes of a row, or writes zeros. Rows of narrow pools have an alignment of eight
// bytes. left is how many bytes the row has from there on.
__device__ __forceinline__ void StartPiece(uint32_t to, const char* from, bool has, int left, bool narrow) {
  if (!narrow) {
    Copy(to, from, has && left > 0);
    return;
  }
#pragma unroll
  for (int half = 0; half < 16; half += 8) {
    if (has && left > half) {
      CopyFew<8>(to + half, from + half);
    } else {
      asm volatile("st.shared.v2.u32 [%0], {%1, %1};" ::"r"(to + half), "r"(0) : "memory");
    }
  }
}

// CopyRows starts the copies of kKeys rows: of keys, of values, or of both, whose stages are apart bytes from each
// other. Lanes copy 16 bytes of a row each, and read its address from shared memory, which takes fewer instructions
// than to pass it from lane to lane. keys_left and values_left are the bytes of a row from the lane's piece on.
enum Which { kOfKeys = 1, kOfValues = 2, kOfBoth = 3 };
template <int kPieces, int kKeys, Which kWhich>
__device__ __forceinline__ void CopyRows(uint32_t to, int apart, const RowAddress* rows, int keys_left, int values_left,
                                         bool narrow) {
  constexpr int kAtOnce = 32 / kPieces;
  const int lane = threadIdx.x % 32, first = lane / kPieces, piece = lane % kPieces;
  const int swizzled = PieceAt<kPieces>(first, piece);
  constexpr int kMany = kKeys / kAtOnce < 8 ? kKeys / kAtOnce : 8;
#pragma unroll 1
  for (int base = 0; base < kKeys; base += kMany * kAtOnce) {
    RowAddress row[kMany];  // all are read first: the compiler does not move a read in front of a copy
#pragma unroll
    for (int i = 0; i < kMany; ++i) row[i] = rows[base + i * kAtOnce + first];
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      const int in = i * kAtOnce;
      const bool has = row[i].key != nullptr;
      const uint32_t there = to + (swizzled ^ (kPieces == 4 ? in >> 1 & 3 : in & 7) * 16) + (base + in) * kPieces * 16;
      if (kWhich & kOfKeys) StartPiece(there, row[i].key + piece * 16, has, keys_left, narrow);
      if (kWhich & kOfValues) StartPiece(there + apart, row[i].value + piece * 16, has, values_left, narrow);
    }
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
  RowAddress* const rows;             // of the kLook keys that were looked up last
  const int key_head, channel, step;  // nodes from one of a block to its next one
  Leaf next;
  int in, place, entry;  // the next stage; of the lane's key: its place, and the block of the one kLook keys later

  __device__ __forceinline__ PoolReader(const Params& p, const Sequence& s, const Division& keys, const NewRows& added,
                                        char* ring, RowAddress* rows, int key_head, int channel, int first, int step)
      : p(p),
        s(s),
        keys(keys),
        added(added),
        ring(ring),
        rows(rows),
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
      entry = EntryOf(p, s, j);
    }
  }
  // PlaceOf is the place of the lane's key. A key that is new is read from the token, while the pool is written.
  __device__ __forceinline__ int PlaceOf(const Leaf& leaf) const {
    const int j = leaf.key + static_cast<int>(threadIdx.x) % 32;
    if (j < keys.seen || j >= leaf.end) return -1;
    const int at = PlaceIn(p, entry, j);
    if (!kIsCode<C> && p.concurrent && j >= s.past) {
      const int token = s.token + j - s.past;
      if (p.slots == nullptr || __ldg(p.slots + token) == at) return AddedPlace(token);
    }
    return at;
  }

  // AddressOf is the address of the row at a place.
  __device__ __forceinline__ RowAddress AddressOf(int place) const {
    if (place == -1) return {nullptr, nullptr};
    const bool is_new = !kIsCode<C> && place < -1;
    const uint32_t row = is_new ? AddedPlace(place) : place, width = p.width * S::kSize,
                   value_width = p.value_width * S::kSize, heads = p.key_heads;
    const char* const keys = static_cast<const char*>(is_new ? p.k : p.key_cache_out) + key_head * width;
    const char* const values = static_cast<const char*>(is_new ? p.v : p.value_cache_out) + key_head * value_width;
    return {keys + static_cast<size_t>(row) * (heads * width),
            values + static_cast<size_t>(row) * (heads * value_width) + channel * S::kSize};
  }
  __device__ __forceinline__ void CopyStage(char* stage, const RowAddress* from) const {
    const uint32_t to = SharedAddress(stage);
    const auto left = [](size_t width, int first, int pieces) {
      return (static_cast<int>(width) - first) * S::kSize - static_cast<int>(threadIdx.x) % pieces * 16;
    };
    const int keys_left = left(p.width, 0, S::kKeyPieces), values_left = left(p.value_width, channel, S::kValuePieces);
    if constexpr (S::kKeyPieces == S::kValuePieces) {
      CopyRows<S::kKeyPieces, S::kKeys, kOfBoth>(to, S::kValuesAt, from, keys_left, values_left, IsNarrow());
    } else {
      CopyRows<S::kKeyPieces, S::kKeys, kOfKeys>(to, 0, from, keys_left, 0, IsNarrow());
      CopyRows<S::kValuePieces, S::kKeys, kOfValues>(to, S::kValuesAt, from, 0, values_left, IsNarrow());
    }
  }

  // Start starts the copies of the next stage, as a group, which is empty behind the last one.
  __device__ __forceinline__ void Start() {
    if (next.Has()) {
      const int lane = threadIdx.x % 32, first_lane = next.key % kLook;
      if (first_lane == 0) {
        place = PlaceOf(next);
        __syncwarp();
        rows[lane] = AddressOf(place);
        __syncwarp();
        Leaf later{next.node, next.key + kLook, next.end};
        if (!later.Has()) later = keys.Of(next.node + step);
        Ask(later);
      }
      char* const stage = ring + in * S::kBytes;
      in = in + 1 == p.stages ? 0 : in + 1;
      CopyStage(stage, rows + first_lane);
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
        const size_t at = static_cast<size_t>(token) * p.key_heads + key_head;
        for (int i = lane; i < S::kKeyPieces + S::kValuePieces; i += 32) {
          const bool of_keys = i < S::kKeyPieces;
          const int piece = of_keys ? i : i - S::kKeyPieces, first = of_keys ? piece * 8 : channel + piece * 8;
          const size_t width = of_keys ? p.width : p.value_width;
          if (first >= static_cast<int>(width)) continue;
          *reinterpret_cast<uint4*>(stage + (of_keys ? PieceAt<S::kKeyPieces>(row, piece)
                                                     : S::kValuesAt + PieceAt<S::kValuePieces>(row, piece))) =
              *reinterpret_cast<const uint4*>(static_cast<const T*>(of_keys ? p.k : p.v) + at * width + first);
        }
      }
    }
    __syncwarp();
  }
};

}  // namespace paged
}  // namespace mojo
