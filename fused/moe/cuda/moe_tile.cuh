// Shared parts of the kernels that multiply a tile: its location, its way into shared memory, and the use of its sums.
//
// A tile is 128 rows of an expert's matrix and up to kTokens of its choices. The rows of the first product are 64
// pairs: eight gates, their eight ups, and so on. If a [depth, rows] matrix interleaves gates and ups, the tile does so
// too.
#pragma once

#include "cuda/mma.cuh"
#include "moe/cuda/moe.cuh"

namespace mojo {

constexpr int kTileRows = 128;
constexpr int kTileDeep = 64;  // numbers of each row in a stage
constexpr int kTileThreads = 256;
constexpr int kRowBytes = kTileRows * kTileDeep * 2;

// Stages are as many as leave room for a second block on a multiprocessor.
__host__ __device__ constexpr int Stages(int tokens) { return tokens == 128 ? 3 : 4; }
__host__ __device__ constexpr int StageBytes(int tokens) { return kRowBytes + tokens * kTileDeep * 2; }

// SharedBytes is the shared memory of a block: 80 KB for 32 tokens, 96 KB for 64 and 128.
__host__ __device__ constexpr int SharedBytes(int tokens) { return Stages(tokens) * StageBytes(tokens); }

// Product is the result that a kernel computes: activations, with or without gates, or outputs.
enum Product { kGateUp, kDown };

// HopperTile launches one product with tiles of 64, 128 or 256 tokens if HasHopperTile: on compute capability 9.0
// (moe_wgmma.cu).
bool HasHopperTile();
cudaError_t HopperTile(const MojoMoEArgs& a, const MoEWork& work, Product product, int tokens, cudaStream_t stream);

// Swapped is the offset of a 16-byte piece. Tokens are rows of 8 pieces, and so are the rows of a [rows, depth] matrix;
// the rows of a [depth, rows] matrix are 64 rows of 16 pieces. Pieces are swapped so that eight pieces read at once are
// in different banks; for rows of 8 it is the 128 byte swizzle of Hopper.
__device__ __forceinline__ int Swapped(int row, int piece, int pieces) {
  return (row * pieces + (piece ^ (row & 7))) * 16;
}

// Place is which tile a block has.
struct Place {
  int expert;
  int row_block;
  int first;  // place of the first choice
  int count;

  // Entry reads the list entry of the tile that contains place number index.
  static __device__ __forceinline__ int4 Entry(const MoEWork& work, int index, int row_blocks) {
    return __ldcg(reinterpret_cast<const int4*>(work.plan.tiles + index / row_blocks));
  }

  // Set finds place number index: for each block of rows, an expert's tiles run one after the other, so that they read
  // those rows from L2. Tiles of one expert have about equal sizes.
  __device__ __forceinline__ void Set(const int4& entry, int index, int row_blocks, int tokens) {
    const MoETile tile = {entry.x, entry.y, entry.z, entry.w};
    const int tiles = (tile.count + tokens - 1) / tokens, number = index - tile.first_tile * row_blocks;
    const int share = ((tile.count + tiles - 1) / tiles + 15) / 16 * 16, before = number % tiles * share;
    expert = tile.expert;
    row_block = number / tiles;
    first = tile.start + before;
    count = min(share, tile.count - before);
  }

  // Begin waits, and reports whether the block has a place. The second product does not wait here: the first one did
  // before it let this one start, so the plan and earlier data can be read, from L2.
  __device__ __forceinline__ bool Begin(const MoEWork& work, int row_blocks, int tokens, Product product) {
    if (product != kDown) {
      WaitForPrevious();
      LetNextStart();
    }
    const unsigned tile_count = __ldcg(work.plan.tile_count);
    const int4 entry = Entry(work, blockIdx.x, row_blocks);
    if (blockIdx.x >= tile_count * row_blocks) {
      if (product == kDown) WaitForPrevious();
      return false;
    }
    Set(entry, blockIdx.x, row_blocks, tokens);
    return true;
  }
};

// Source is the location of the data that a thread copies. Row and token offsets are in 16-byte pieces, and negative if
// the row or token is missing.
template <int kTokens, Product kProduct, bool kInOut>
struct Source {
  static constexpr int kRowCopies = kTileRows * kTileDeep / 8 / kTileThreads;
  static constexpr int kTokenCopies = (kTokens + 31) / 32;  // a multiple of 16 tokens; more are zeros
  const uint4* matrix;
  const uint4* tokens;
  int stride;           // of the matrix, in pieces
  int row[kRowCopies];  // kInOut: [0] alone, this thread's piece of the rows
  int token[kTokenCopies];
  int depth;

  __device__ __forceinline__ Source(const MojoMoEArgs& a, const MoEWork& work, const Place& place) {
    const int n = threadIdx.x, hidden = static_cast<int>(a.hidden), inner = static_cast<int>(a.inner);
    const int height = kProduct == kDown ? hidden : static_cast<int>(Packed(a));
    depth = kProduct == kDown ? inner : hidden;
    stride = (kInOut ? height : depth) / 8;
    matrix = static_cast<const uint4*>(kProduct == kDown ? a.down : a.gate_up) +
             static_cast<size_t>(place.expert) * height * (depth / 8);
    tokens = static_cast<const uint4*>(kProduct == kDown ? work.activated : a.x);
    if (kInOut) {
      const int piece = n % 16, column = place.row_block * kTileRows + piece * 8,
                pair = place.row_block * 64 + piece / 2 * 8;
      if (kProduct == kGateUp && a.packing == Packing::kHalves) {
        row[0] = pair < inner ? (piece % 2 == 0 ? pair : inner + pair) / 8 : -1;
      } else {
        row[0] = column < height ? column / 8 : -1;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRowCopies; ++i) {
        const int at = n / 8 + 32 * i, pair = place.row_block * 64 + at / 16 * 8 + at % 8;
        int number = place.row_block * kTileRows + at;
        bool is = number < height;
        if (kProduct == kGateUp && a.packing != Packing::kNone) {
          number = static_cast<int>(at % 16 < 8 ? GateRow(a, pair) : UpRow(a, pair));
          is = pair < inner;
        }
        row[i] = is ? number * stride : -1;
      }
    }
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i) {
      const int at = n / 8 + 32 * i;
      token[i] = -1;
      if (at >= place.count) continue;
      const int number = kProduct == kDown ? place.first + at
                                           : __ldcg(work.plan.choice + place.first + at) / static_cast<int>(a.top_k);
      token[i] = number * (depth / 8);
    }
  }

  __device__ __forceinline__ int Steps() const { return (depth + kTileDeep - 1) / kTileDeep; }

  // StartRows and StartTokens start the copies of step k of the depth.
  __device__ __forceinline__ void StartRows(uint32_t shared, int k) const {
    const int n = threadIdx.x, piece = k * (kTileDeep / 8) + n % 8;
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i) {
      if (kInOut) {
        const int at = n / 16 + 16 * i, deep = k * kTileDeep + at;
        const bool is = row[0] >= 0 && deep < depth;
        Copy(shared + Swapped(at, n % 16, 16), is ? matrix + (static_cast<size_t>(deep) * stride + row[0]) : matrix,
             is);
      } else {
        const bool is = row[i] >= 0 && piece * 8 < depth;
        Copy(shared + Swapped(n / 8 + 32 * i, n % 8, 8), is ? matrix + row[i] + piece : matrix, is);
      }
    }
  }
  __device__ __forceinline__ void StartTokens(uint32_t shared, int k) const {
    const int n = threadIdx.x, piece = k * (kTileDeep / 8) + n % 8;
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i) {
      const bool is = token[i] >= 0 && piece * 8 < depth;
      Copy(shared + kRowBytes + Swapped(n / 8 + 32 * i, n % 8, 8), is ? tokens + token[i] + piece : tokens, is);
    }
  }
  __device__ __forceinline__ void Start(uint32_t shared, int k) const {
    StartRows(shared, k);
    StartTokens(shared, k);
  }
};

// BeginTile starts the first kAhead steps, each a group. In the second product weights are in flight
// before it waits for the activations.
template <int kTokens, Product kProduct, int kAhead, class Source>
__device__ __forceinline__ void BeginTile(const Source& source, uint32_t shared) {
  const int steps = source.Steps();
  if constexpr (kProduct == kDown) {
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
      if (s < steps) source.StartRows(shared + s * StageBytes(kTokens), s);
    }
    WaitForPrevious();
    LetNextStart();
  }
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
    if (s < steps) {
      if constexpr (kProduct != kDown) source.StartRows(shared + s * StageBytes(kTokens), s);
      source.StartTokens(shared + s * StageBytes(kTokens), s);
    }
    EndGroup();
  }
}

// The sums of a warp are kParts times 16 rows, from row on, by kColumns times 8 tokens, from column(c) on;
// in the registers of a lane as mma.sync and wgmma leave them: of rows lane / 4 and that plus 8, the tokens
// 2 * (lane % 4) and the next. They go through shared memory, so that stores are rows of tokens.

// PutSums puts them into shared memory as [token][row], with a stride of kSumStride.
constexpr int kSumStride = kTileRows + 4;
template <int kParts, int kColumns, class Column>
__device__ __forceinline__ const float* PutSums(char* shared, const float (&sum)[kParts][kColumns][4], int row,
                                                const Column& column) {
  const int lane = threadIdx.x % 32;
  float* const out = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int m = 0; m < kParts; ++m) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out[(column(c) + lane % 4 * 2 + i % 2) * kSumStride + row + m * 16 + i / 2 * 8 + lane / 4] = sum[m][c][i];
      }
    }
  }
  __syncthreads();
  return out;
}

// LoadPairs loads four gates and their ups: gates and ups in turns, or each up `apart` from its gate. Without gates it
// loads the numbers to activate.
__device__ __forceinline__ void LoadPairs(const float* in, bool gated, bool turns, int apart, float (&gate)[4],
                                          float (&up)[4]) {
  const float4 one = *reinterpret_cast<const float4*>(in);
  float4 two = make_float4(0, 0, 0, 0);
  if (gated) two = *reinterpret_cast<const float4*>(in + (turns ? 4 : apart));
  gate[0] = one.x, gate[1] = turns ? one.z : one.y, gate[2] = turns ? two.x : one.z, gate[3] = turns ? two.z : one.w;
  up[0] = turns ? one.y : two.x, up[1] = turns ? one.w : two.y, up[2] = turns ? two.y : two.z, up[3] = two.w;
}

// StoreFour stores four numbers of a row.
template <class T>
__device__ __forceinline__ void StoreFour(void* to, size_t at, const float (&v)[4]) {
  StorePack(static_cast<T*>(to) + at, PackFloats<T>(v));
}

// StoreBounded stores four activations.
template <class T>
__device__ __forceinline__ void StoreBounded(void* to, size_t at, const float (&v)[4]) {
  const float bounded[4] = {Bounded<T>(v[0]), Bounded<T>(v[1]), Bounded<T>(v[2]), Bounded<T>(v[3])};
  StoreFour<T>(to, at, bounded);
}

// StoreOutputs adds the bias and multiplies with the tokens' weights.
template <class T>
__device__ __forceinline__ void StoreOutputs(const MojoMoEArgs& a, const MoEWork& work, const Place& place,
                                             const float* sums) {
  const int lane = threadIdx.x % 32, h = place.row_block * kTileRows + lane * 4;
  if (h >= static_cast<int>(a.hidden)) return;
  float bias[4] = {};
  if (a.down_bias != nullptr) {
#pragma unroll
    for (int i = 0; i < 4; ++i) bias[i] = Number(a.down_bias, place.expert * a.hidden + h + i, a.expert_type);
  }
  for (int t = threadIdx.x / 32; t < place.count; t += kTileThreads / 32) {
    const int choice = work.plan.choice[place.first + t];
    const float weight = Number(a.weights, choice, a.weights_type);
    const float4 v = *reinterpret_cast<const float4*>(sums + t * kSumStride + lane * 4);
    const float y[4] = {(v.x + bias[0]) * weight, (v.y + bias[1]) * weight, (v.z + bias[2]) * weight,
                        (v.w + bias[3]) * weight};
    const size_t at = static_cast<size_t>(choice) * a.hidden + h;
    if (work.wide) {
      StoreFour<float>(work.outputs, at, y);
    } else {
      StoreFour<T>(work.outputs, at, y);
    }
  }
}

// StoreActivated adds the bias and activates, four results of a token in each thread.
template <class T, bool kInOut>
__device__ __forceinline__ void StoreActivated(const MojoMoEArgs& a, const MoEWork& work, const Place& place,
                                               const float* sums) {
  const bool gated = a.packing != Packing::kNone, turns = kInOut && a.packing == Packing::kInterleaved;
  const int shift = gated ? 4 : 5, threads = 1 << shift;  // of a token
  const int i = (threadIdx.x & (threads - 1)) * 4, begin = place.row_block * threads * 4 + i;
  if (begin >= static_cast<int>(a.inner)) return;
  float gate_bias[4] = {}, up_bias[4] = {};
  if (a.gate_up_bias != nullptr) {
    const size_t bias = place.expert * Packed(a);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      gate_bias[j] = Number(a.gate_up_bias, bias + GateRow(a, begin + j), a.expert_type);
      if (gated) up_bias[j] = Number(a.gate_up_bias, bias + UpRow(a, begin + j), a.expert_type);
    }
  }
  const float* const from = sums + (!gated ? i : turns ? 2 * i : i / 8 * 16 + i % 8);
  for (int token = threadIdx.x >> shift; token < place.count; token += kTileThreads >> shift) {
    float gate[4], up[4];
    LoadPairs(from + token * kSumStride, gated, turns, 8, gate, up);
#pragma unroll
    for (int j = 0; j < 4; ++j) gate[j] += gate_bias[j], up[j] += up_bias[j];
    ActivateInTurn(a, gate, up);
    StoreBounded<T>(work.activated, static_cast<size_t>(place.first + token) * a.inner + begin, gate);
  }
}

}  // namespace mojo
