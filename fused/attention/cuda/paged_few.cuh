// PagedAttention of sequences of few rows, as in decode steps, with mma.sync: Dao et al., "Flash-Decoding", 2023, over
// blocks of a pool as in Kwon et al., "PagedAttention", 2023.
//
// One launch attends, joins the parts of a tile's blocks and, to pools of numbers, writes the new rows. No block reads
// a new row from the pool: it reads the token, whatever sequence the token is of, so that the order of blocks does not
// matter. Codes are written by the launch before, and blocks wait for it only where they meet a block of the pool that
// it writes. The floor is the bytes of the keys and values over the memory bandwidth.
#pragma once

#include <limits.h>

#include "attention/cuda/attention_join.cuh"
#include "attention/cuda/paged_rows.cuh"

namespace mojo {
namespace paged {

constexpr int kFewThreads = 32 * kFewWarps;
constexpr int kPlaces = 8;  // rows of parts that a block's shared memory has room for

// PoolSum is the sum of parts of four channels of a row. Parts are added one by one, so that the result does not
// depend on how many are at hand.
struct PoolSum {
  float4 total = make_float4(0, 0, 0, 0);
  float most = -INFINITY, sum = 0;

  __device__ __forceinline__ void Add(float4 v, float2 state) {
    const float greatest = fmaxf(most, state.x), base = Finite(greatest);
    const float by = PowerOfTwo(most - base), v_by = PowerOfTwo(state.x - base);
    total.x = __fmaf_rn(v_by, v.x, __fmul_rn(total.x, by)), total.y = __fmaf_rn(v_by, v.y, __fmul_rn(total.y, by));
    total.z = __fmaf_rn(v_by, v.z, __fmul_rn(total.z, by)), total.w = __fmaf_rn(v_by, v.w, __fmul_rn(total.w, by));
    sum = __fmaf_rn(v_by, state.y, __fmul_rn(sum, by));
    most = greatest;
  }
};

// FewMemory is the shared memory of a block behind the rings of its warps.
template <int kValues>
struct FewMemory {
  float total[kPlaces * kValues];  // parts from a cluster's blocks, or the sums of the nodes so far
  float2 state[2 * kPlaces];
  float2 leaf_state[kFewWarps][kTileRows];
  int leaf_at[kFewWarps];
  RowAddress rows[kFewWarps][kLook];
  NewRows added;
  ByteCount arrived;
  bool last;
};

// NewPiece is 16 bytes of a sequence's new rows of a key head, and their place in the pools.
template <class T>
struct NewPiece {
  uint4 piece;
  T* to = nullptr;

  // Of the pieces of the keys and values of all its tokens, n is read, if there are as many and it has a place.
  __device__ __forceinline__ NewPiece(const Params& p, const Sequence& s, int key_head, int n) {
    const int keys = static_cast<int>(p.width) / 8, all = keys + static_cast<int>(p.value_width) / 8;
    if (n >= s.added * all) return;
    const int i = p.by_pieces.Quotient(n), in_row = n - i * all;
    const bool of_keys = in_row < keys;
    const size_t width = of_keys ? p.width : p.value_width, at = (of_keys ? in_row : in_row - keys) * 8;
    piece = *reinterpret_cast<const uint4*>(static_cast<const T*>(of_keys ? p.k : p.v) +
                                            (static_cast<size_t>(s.token + i) * p.key_heads + key_head) * width + at);
    size_t row = SIZE_MAX;
    if (p.slots != nullptr) {
      const int slot = __ldg(p.slots + s.token + i);
      if (slot >= 0) row = slot;
    } else if (s.past + i < s.length) {
      row = Place(p, s, s.past + i);
    }
    if (row >= p.blocks * p.block) return;
    to = static_cast<T*>(of_keys ? p.key_cache_out : p.value_cache_out) + (row * p.key_heads + key_head) * width + at;
  }
  __device__ __forceinline__ void Store() const {
    if (to != nullptr) *reinterpret_cast<uint4*>(to) = piece;
  }
};

// WriteRows writes a sequence's new rows of a key head to the pools, from piece n on every step-th.
template <class T>
__device__ __forceinline__ void WriteRows(const Params& p, const Sequence& s, int key_head, int n, int step) {
  const int pieces = s.added * (static_cast<int>(p.width) + static_cast<int>(p.value_width)) / 8;
#pragma unroll 1
  for (; n < pieces; n += step) NewPiece<T>(p, s, key_head, n).Store();
}

// FewTile is a tile of a sequence's rows, and how its nodes are shared among blocks.
template <class T, class C, int kWidth, int kValues>
struct FewTile {
  typedef PoolStage<C, kWidth, kValues> S;
  typedef PoolRows<T, C, kWidth, kValues> Rows;
  static constexpr int kQuads = kValues / 4;
  // Alone a block adds all nodes. In a cluster each block gets the parts of its own rows. Otherwise parts are in
  // scratch memory, and the last block adds them.
  enum Way { kAlone, kInCluster, kByScratch };
  const Params& p;
  const Sequence& s;
  const Division& keys;
  char* const rings;
  FewMemory<kValues>* const memory;
  const int key_head, slice, split;
  int first, rows;  // the first row, and rows of the tile
  int own_bits;     // log2 of the rows that a block of a cluster gets
  int step;         // from a node of the block to its next one
  Way way;

  __device__ __forceinline__ FewTile(const Params& p, const Sequence& s, const Division& keys, char* rings,
                                     FewMemory<kValues>* memory, int key_head, int slice)
      : p(p), s(s), keys(keys), rings(rings), memory(memory), key_head(key_head), slice(slice), split(blockIdx.x) {}

  // Take begins a tile, and reports whether the block works on it.
  __device__ __forceinline__ bool Take(int first_row, bool is_first) {
    first = first_row;
    rows = min(kTileRows, s.added * p.group - first);
    own_bits = max(0, __clz(p.cluster) + 1 - __clz(rows - 1));
    if (p.splits == 1 || keys.nodes == 1) {
      way = kAlone, step = 1;
      return split == 0;
    }
    if (is_first && p.cluster > 1 && (keys.nodes <= p.cluster || p.splits == p.cluster) &&
        keys.nodes << own_bits <= kPlaces) {
      way = kInCluster, step = p.cluster;
      return split < p.cluster;
    }
    way = kByScratch, step = p.splits;
    return split < keys.nodes;
  }

  __device__ __forceinline__ int Channel(int quad) const { return slice * kValues + quad * 4; }
  __device__ __forceinline__ bool HasChannel(int quad) const { return Channel(quad) < static_cast<int>(p.value_width); }
  __device__ __forceinline__ int TokenOf(int r) const { return (first + r) * p.by_group >> 16; }
  __device__ __forceinline__ int HeadOfRow(int r) const {
    return HeadOf(p, key_head, first + r - TokenOf(r) * p.group);
  }
  // At is the first part of a row in scratch memory.
  __device__ __forceinline__ size_t At(int r) const {
    return (s.Slot(p, TokenOf(r)) * p.heads + HeadOfRow(r)) * p.most_nodes;
  }
  __device__ __forceinline__ unsigned long long* Count() const {
    const int tile = (s.number * static_cast<int>(p.key_heads) + key_head) * kMostTiles + first / kTileRows;
    return p.finished + static_cast<size_t>(tile) * p.slices + slice;
  }

  // Store writes four channels of a row of y.
  __device__ __forceinline__ void Store(int r, int quad, const PoolSum& joined) const {
    const int head = HeadOfRow(r);
    const float by = Ending(joined.most, joined.sum, SinkScore(p.sink, head));
    const float v[4] = {joined.total.x * by, joined.total.y * by, joined.total.z * by, joined.total.w * by};
    T* const y = static_cast<T*>(p.y) + (static_cast<size_t>(s.token + TokenOf(r)) * p.heads + head) * p.value_width;
    StorePack(y + Channel(quad), PackFloats<T>(v));
  }

  // Join adds the warps' leaves of a node, the block's n-th, and passes the sums on.
  __device__ __forceinline__ void Join(int node, int n) const {
    const int leaves = keys.Leaves(node);
    for (int i = threadIdx.x; i < rows * kQuads; i += kFewThreads) {
      const int r = i / kQuads, quad = i % kQuads;
      if (!HasChannel(quad)) continue;
      PoolSum part;
      for (int w = 0; w < leaves; ++w) {
        part.Add(
            *reinterpret_cast<const float4*>(rings + memory->leaf_at[w] + Rows::SumAt(r, quad / 2, quad % 2 * 4) * 4),
            memory->leaf_state[w][r]);
      }
      const float2 state = make_float2(part.most, part.sum);
      if (way == kAlone) {
        // The state is read from the other half than it is written to: other threads read it for their channels.
        float4* const kept = reinterpret_cast<float4*>(memory->total + r * kValues + quad * 4);
        PoolSum joined;
        if (n > 0) {
          const float2 before = memory->state[(n - 1) % 2 * kPlaces + r];
          joined.total = *kept, joined.most = before.x, joined.sum = before.y;
        }
        joined.Add(part.total, state);
        if (node == keys.nodes - 1) {
          Store(r, quad, joined);
        } else {
          *kept = joined.total;
          if (quad == 0) memory->state[n % 2 * kPlaces + r] = make_float2(joined.most, joined.sum);
        }
      } else if (way == kInCluster) {
        const int owner = r >> own_bits, place = (r - (owner << own_bits)) * keys.nodes + node;
        const uint32_t counts = InBlock(&memory->arrived, owner);
        StoreThere(InBlock(memory->total + place * kValues + quad * 4, owner), part.total, counts);
        if (quad == 0) StoreThere(InBlock(memory->state + place, owner), state, counts);
      } else {
        const size_t at = At(r) + node;
        *reinterpret_cast<float4*>(p.part + at * p.value_width + Channel(quad)) = part.total;
        if (quad == 0) p.state[at * p.slices + slice] = state;
      }
    }
  }

  // Finish waits for other blocks' parts, and adds those of a block's rows in their order. Parts in scratch memory are
  // copied into the rings first, as many as there is room for, since each read takes long.
  __device__ __forceinline__ void Finish() const {
    if (way == kAlone) return;
    const bool here = way == kInCluster;
    int begin = 0, count = rows;
    if (here) {
      begin = split << own_bits, count = min(1 << own_bits, rows - begin);
      if (count <= 0) return;
      WaitForBytes(&memory->arrived);
    } else {
      __syncthreads();
      if (threadIdx.x == 0) {
        __threadfence();
        memory->last = CountsLast(Count(), p.tag, min(step, keys.nodes));
        __threadfence();
      }
      __syncthreads();
      if (!memory->last) return;
    }
    constexpr int kRows = kFewThreads / kQuads;  // at a time; the lanes of a row are in one warp
    const int local = threadIdx.x / kQuads, quad = threadIdx.x % kQuads;
    const int room = here ? keys.nodes : p.stages * kFewWarps * S::kBytes / (kRows * (kValues * 4 + 8));
    float2* const own_states = reinterpret_cast<float2*>(rings) + local * room;
    float4* const own_parts = reinterpret_cast<float4*>(rings + kRows * room * 8) + threadIdx.x;
    for (int base = 0; base < count; base += kRows) {
      const int r = base + local;
      const bool has = r < count && HasChannel(quad);
      const float2* const states = here ? memory->state + r * keys.nodes : own_states;
      const float4* const parts =
          here ? reinterpret_cast<float4*>(memory->total) + r * keys.nodes * kQuads + quad : own_parts;
      PoolSum joined;
      for (int node = 0; node < keys.nodes; node += room) {
        const int some = min(room, keys.nodes - node);
        if (!here && has) {
          const size_t at = At(r) + node;
          const float* part = p.part + at * p.value_width + Channel(quad);
          const float2* state = p.state + at * p.slices + slice;
#pragma unroll 1
          for (int k = 0; k < some; ++k, part += p.value_width, state += p.slices) {
            Copy(SharedAddress(own_parts + k * kFewThreads), part, true);
            if (quad == 0) CopyFew<8>(SharedAddress(own_states + k), state);
          }
          EndGroup();
          WaitForGroups<0>();
        }
        __syncwarp();
        if (has) {
#pragma unroll 4
          for (int k = 0; k < some; ++k) joined.Add(parts[k * (here ? kQuads : kFewThreads)], states[k]);
        }
        __syncwarp();
      }
      if (has) Store(begin + r, quad, joined);
    }
  }

  // ExpectParts is called once all blocks of the cluster are there.
  __device__ __forceinline__ void ExpectParts() const {
    __syncwarp();
    WaitForCluster();
    const int count = min(1 << own_bits, rows - (split << own_bits));
    const int channels = min(kValues, static_cast<int>(p.value_width) - slice * kValues);
    if (threadIdx.x == 0 && count > 0) ExpectBytes(&memory->arrived, count * keys.nodes * (channels * 4 + 8));
  }
};

// AttendSequence attends for a block's tiles of a sequence of few rows. guessed is the table's entry for the lane's key
// guess. first_piece is the piece of the new rows that the thread writes, behind the last one if it writes none.
template <class T, class C, int kWidth, int kValues>
__device__ __forceinline__ void AttendSequence(const Params& p, const Sequence& s, const NewRow& new_row, char* rings,
                                               FewMemory<kValues>* memory, int key_head, int first_tile, int slice,
                                               int guess, int guessed, int first_piece) {
  typedef PoolStage<C, kWidth, kValues> S;
  typedef FewTile<T, C, kWidth, kValues> Tile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  char* const ring = rings + warp * p.stages * S::kBytes;
  const Division keys(p, s);
  Tile work(p, s, keys, rings, memory, key_head, slice);
  bool is_first = true, has_added = false;
  const int count = s.added * p.group;
  for (int first = first_tile * kTileRows; first < count; first += p.row_tiles * kTileRows) {
    const bool works = work.Take(first, is_first);
    const int first_node = works ? work.split : keys.nodes;
    PoolReader<T, C, kWidth, kValues> reader(p, s, keys, memory->added, ring, memory->rows[warp], key_head,
                                             slice * kValues, first_node, work.step);
    is_first = false;
    if (!works) continue;
    if (guess == reader.next.key + lane) {
      reader.entry = guessed;
    } else {
      reader.Ask(reader.next);
    }
    PoolRows<T, C, kWidth, kValues> rows(p);
    int node = first_node, nodes = 0, out = 0;
    Leaf leaf = keys.Of(node);
    // One loop starts the first stages and goes over all, since instructions are read from memory too.
#pragma unroll 1
    for (int n = 1 - p.stages;; ++n) {
      if (n == 0) {
        if (work.way == Tile::kByScratch && threadIdx.x == 0) BeginCount(work.Count(), p.tag);
        rows.Begin(s, key_head, first, count);
        if (p.concurrent && !has_added) {
          const NewPiece<T> piece(p, s, key_head, first_piece);
          memory->added.template Find<kFewThreads, kIsCode<C>>(p, new_row);
          piece.Store();
          has_added = true;
        }
        if (work.way == Tile::kInCluster) work.ExpectParts();
        if (node >= keys.nodes) break;
        rows.Clear();
      }
      const bool adds = n >= 0 && leaf.Has();
      if (n < 0 || adds) {
        __syncwarp();
        reader.Start();
      }
      if (n < 0) continue;
      if (adds) {
        if (p.stages == 3) {
          WaitForGroups<2>();
        } else if (p.stages == 2) {
          WaitForGroups<1>();
        } else {
          WaitForGroups<0>();
        }
        __syncwarp();
        char* const stage = ring + out * S::kBytes;
        out = out + 1 == p.stages ? 0 : out + 1;
        if (p.concurrent) reader.Mend(stage, leaf);
        rows.Add(stage, leaf.key);
        leaf.key += S::kKeys;
        if (leaf.Has()) continue;
        __syncwarp();
        rows.Store(reinterpret_cast<float*>(stage), memory->leaf_state[warp]);
        if (lane == 0) memory->leaf_at[warp] = static_cast<int>(stage - rings);
        rows.Clear();
      }
      __syncthreads();
      work.Join(node, nodes++);
      __syncthreads();
      node += work.step;
      if (node >= keys.nodes) break;
      leaf = keys.Of(node);
    }
    WaitForGroups<0>();
    work.Finish();
    __syncthreads();
  }
}

// AttendFew has blocks [splits, key heads * row tiles * slices of values, sequences]. A block takes every row_tiles-th
// tile of its sequence.
//
// Registers: 168 for 16-bit rows of up to 128 channels, otherwise 255. Shared memory: the rings of its warps, PoolStage
// times p.stages each, and FewMemory.
template <class T, class C, int kWidth, int kValues>
__global__ __launch_bounds__(kFewThreads,
                             MostBeside(kIsCode<C>, kWidth)) void AttendFew(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) char rings[];
  FewMemory<kValues>* const memory =
      reinterpret_cast<FewMemory<kValues>*>(rings + kFewWarps * p.stages * PoolStage<C, kWidth, kValues>::kBytes);
  if (p.cluster > 1) {
    if (threadIdx.x == 0) InitByteCount(&memory->arrived);
    __syncwarp();
    ArriveAtCluster();
  }
  // The launch before this one writes codes, and nothing else that is read here.
  const bool beside_codes = kIsCode<C> && p.concurrent;
  if (!beside_codes) {
    WaitForPrevious();
    LetNextStart();
  }
  // The first keys are guessed, to have their blocks as soon as the lengths: those of short sequences without a window.
  const int block = blockIdx.x, warp = threadIdx.x / 32, guess = (block * kFewWarps + warp) * kLook + threadIdx.x % 32;
  const int guessed_column = min(ColumnOf(p, guess), static_cast<int>(p.columns) - 1);
  const int guessed = __ldg(p.table + static_cast<size_t>(blockIdx.z) * p.columns + guessed_column);
  const Sequence s(p, blockIdx.z), other(p, min(static_cast<int>(threadIdx.x), static_cast<int>(p.sequences) - 1));
  const int tile = p.by_key_heads.Quotient(blockIdx.y), slice = p.by_row_tiles.Quotient(tile);
  const int key_head = static_cast<int>(blockIdx.y) - tile * static_cast<int>(p.key_heads);
  if (p.concurrent) memory->added.template Clear<kFewThreads>();
  const bool writes = !kIsCode<C> && p.concurrent && tile == 0;
  int piece = block * kFewThreads + threadIdx.x, step = gridDim.x * kFewThreads;
  if (s.added > 0 && s.HasFewRows(p)) {
    step = kFewThreads;
    if (!writes || block > 0) piece = INT_MAX - step;
    AttendSequence<T, C, kWidth, kValues>(p, s, NewRow(p, other), rings, memory, key_head, tile - slice * p.row_tiles,
                                          slice, guess, guessed, piece);
    piece += step;
  }
  if (writes) WriteRows<T>(p, s, key_head, piece, step);
  if (beside_codes) WaitForPrevious();
}

template <class T, class C, int kWidth, int kValues>
cudaError_t RunFew(Params p, cudaStream_t stream) {
  constexpr int kRings = kFewWarps * PoolStage<C, kWidth, kValues>::kBytes, kOther = sizeof(FewMemory<kValues>);
  const int most = TheDevice().shared_bytes;
  // As many stages as the blocks of a multiprocessor have room for, two if a block has, or one.
  p.stages = p.beside * (kMostStages * kRings + kOther + kSystemBytes) <= most + kSystemBytes ? kMostStages : 2;
  if (p.stages * kRings + kOther > most) p.stages = 1;
  const int bytes = p.stages * kRings + kOther;
  if (p.splits > 1) p.tag = NextTag();
  const auto kernel = AttendFew<T, C, kWidth, kValues>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return e;
  // Otherwise the driver may leave room for one block only.
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared)) {
    return e;
  }
  const dim3 grid(static_cast<unsigned>(p.splits), static_cast<unsigned>(p.key_heads * p.row_tiles * p.slices),
                  static_cast<unsigned>(p.sequences));
  return LaunchClusters(kernel, p.cluster, grid, kFewThreads, bytes, stream, p);
}

template <class T, class C>
cudaError_t AttendFewRows(const Params& p, cudaStream_t stream) {
  if (p.width <= 64 && p.value_width <= 64) return RunFew<T, C, 64, 64>(p, stream);
  return p.width <= 128 ? RunFew<T, C, 128, 128>(p, stream) : RunFew<T, C, 256, 128>(p, stream);
}

}  // namespace paged
}  // namespace mojo
