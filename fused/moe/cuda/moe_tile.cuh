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

// Product is the result that a kernel computes: activations of a first product with or without gates, or outputs.
enum Product { kGated, kPlain, kDown };

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
      if (kProduct == kGated && a.packing == Packing::kHalves) {
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
        if (kProduct == kGated) {
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

// StoreOutputs adds the bias and multiplies with the tokens' weights.
template <class T, int kParts, int kColumns, class Column>
__device__ __forceinline__ void StoreOutputs(const MojoMoEArgs& a, const MoEWork& work, const Place& place,
                                             char* shared, const float (&sum)[kParts][kColumns][4], int row,
                                             const Column& column) {
  constexpr int kStride = kTileRows + 4;
  const int lane = threadIdx.x % 32;
  float* out = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int m = 0; m < kParts; ++m) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out[(column(c) + lane % 4 * 2 + i % 2) * kStride + row + m * 16 + i / 2 * 8 + lane / 4] = sum[m][c][i];
      }
    }
  }
  __syncthreads();
  const int h = place.row_block * kTileRows + lane * 4;
  if (h >= static_cast<int>(a.hidden)) return;
  float bias[4] = {};
  if (a.down_bias != nullptr) {
#pragma unroll
    for (int i = 0; i < 4; ++i) bias[i] = Number(a.down_bias, place.expert * a.hidden + h + i, a.expert_type);
  }
  for (int t = threadIdx.x / 32; t < place.count; t += kTileThreads / 32) {
    const int choice = work.plan.choice[place.first + t];
    const float weight = Number(a.weights, choice, a.weights_type);
    const float4 v = *reinterpret_cast<const float4*>(out + t * kStride + lane * 4);
    const float y[4] = {(v.x + bias[0]) * weight, (v.y + bias[1]) * weight, (v.z + bias[2]) * weight,
                        (v.w + bias[3]) * weight};
    const size_t at = static_cast<size_t>(choice) * a.hidden + h;
    if (work.wide) {
      StorePack(static_cast<float*>(work.outputs) + at, PackFloats<float>(y));
    } else {
      StorePack(static_cast<T*>(work.outputs) + at, PackFloats<T>(y));
    }
  }
}

// StoreActivated adds the bias and activates.
template <class T, Product kProduct, bool kInOut, int kParts, int kColumns, class Column>
__device__ __forceinline__ void StoreActivated(const MojoMoEArgs& a, const MoEWork& work, const Place& place,
                                               char* shared, const float (&sum)[kParts][kColumns][4], int row,
                                               const Column& column) {
  constexpr int kWidth = kProduct == kGated ? 64 : kTileRows, kStride = kWidth + 8;
  const int lane = threadIdx.x % 32, inner = static_cast<int>(a.inner), begin = place.row_block * kWidth;
  T* out = reinterpret_cast<T*>(shared);
  const bool by_turns = kProduct == kGated && kInOut && a.packing == Packing::kInterleaved;
  const size_t bias_at = place.expert * Packed(a);
#pragma unroll
  for (int m = 0; m < kParts; ++m) {
    // A lane holds two rows: a gate and its up, or two of one kind if gates and ups are interleaved. In that case lanes
    // exchange them: even lanes get the first row's pair and odd lanes the second's.
    int i0, i1 = 0;
    if (by_turns) {
      i0 = (row + m * 16 + lane / 4 % 2 * 8 + lane / 4) / 2;
    } else if (kProduct == kGated) {
      i0 = row / 2 + m * 8 + lane / 4;
    } else {
      i0 = row + m * 16 + lane / 4;
      i1 = i0 + 8;
    }
    float gate_bias = 0, up_bias = 0;
    if (a.gate_up_bias != nullptr) {
      if (begin + i0 < inner) gate_bias = Number(a.gate_up_bias, bias_at + GateRow(a, begin + i0), a.expert_type);
      if (kProduct == kGated && begin + i0 < inner)
        up_bias = Number(a.gate_up_bias, bias_at + UpRow(a, begin + i0), a.expert_type);
      if (kProduct == kPlain && begin + i1 < inner)
        up_bias = Number(a.gate_up_bias, bias_at + begin + i1, a.expert_type);
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = column(c) + lane % 4 * 2 + i;
        float gate = sum[m][c][i], up = sum[m][c][i + 2];
        if (by_turns) {
          const bool odd = lane / 4 % 2 != 0;
          const float other = __shfl_xor_sync(0xffffffffu, odd ? gate : up, 4);
          if (odd) {
            gate = other;
          } else {
            up = other;
          }
        }
        gate += gate_bias;
        up += up_bias;
        out[token * kStride + i0] = FromFloat<T>(Bounded<T>(Activated(a, gate, up)));
        if (kProduct == kPlain) out[token * kStride + i1] = FromFloat<T>(Bounded<T>(Activated(a, up, 0)));
      }
    }
  }
  __syncthreads();
  constexpr int kPieces = kWidth / 8;
  for (int at = threadIdx.x; at < place.count * kPieces; at += kTileThreads) {
    const int token = at / kPieces, i = at % kPieces * 8;
    if (begin + i >= inner) continue;
    *reinterpret_cast<uint4*>(static_cast<T*>(work.activated) + static_cast<size_t>(place.first + token) * a.inner +
                              begin + i) = *reinterpret_cast<const uint4*>(out + token * kStride + i);
  }
}

}  // namespace mojo
