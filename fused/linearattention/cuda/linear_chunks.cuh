// The arguments of the chunked kernels of LinearAttention, and the parts that both use. linear_chunks.cu says more.
#pragma once

#include "cuda/mma.cuh"

namespace mojo {
namespace {

constexpr int kChunk = 64;     // tokens
constexpr int kBlock = 64;     // columns of values that a block of ScanChunks takes, and the width of a stored tile
constexpr int kThreads = 128;  // of a block of PrepareChunks, and that compute or load in ScanChunks: four warps

// Chunks are the arguments of a launch: `count` chunks from `first` on, of each sequence and head.
struct Chunks {
  const void* q;
  const void* k;
  const void* v;
  const float* past;  // the states before chunk `first`; null: zeros
  const float* decay;
  const float* beta;
  void* y;
  float* present;  // the states after these chunks
  // Results of PrepareChunks for ScanChunks, [batch, heads, count, ...].
  void* q_scaled;  // [64, key], with a decay for each channel: exp(G) q
  void* k_scaled;  // [64, key], likewise: exp(G_64 - G) k
  void* w;         // [64, key]
  void* u;         // [64, value]
  void* p;         // [64, 64], zeros above the diagonal
  float* q_unit;   // [64]: the factor of S^T q
  float* k_unit;   // [64]: the factor of k in S
  float* last;     // [], or [key] with a decay for each channel: the factor of S
  int64_t batch;
  int tokens, key, value, q_heads, k_heads, heads, beta_heads, first, count;
  int each;    // heads of a block of PrepareChunks; they share their queries and keys
  int stages;  // of the shared memory of ScanChunks, 2 or 3
  float scale, epsilon;
  bool l2_norm;
};

// Position is the sequence, head and chunk of a block.
struct Position {
  int64_t batch, row;  // row: of the chunk's first token among all tokens
  int head, query, key_head, tokens;
  int64_t chunk;  // of the launch

  __device__ __forceinline__ Position(const Chunks& c, int64_t at, int index) {
    head = static_cast<int>(at % c.heads);
    batch = at / c.heads;
    query = static_cast<int>(int64_t{head} * c.q_heads / c.heads);
    key_head = static_cast<int>(int64_t{head} * c.k_heads / c.heads);
    row = batch * c.tokens + int64_t{c.first + index} * kChunk;
    tokens = min(kChunk, c.tokens - (c.first + index) * kChunk);
    chunk = at * c.count + index;
  }

  // After is the position of a later chunk of the same head; this one is the first.
  __device__ __forceinline__ Position After(const Chunks& c, int index) const {
    Position later = *this;
    later.row += int64_t{index} * kChunk, later.chunk += index;
    later.tokens = min(kChunk, c.tokens - (c.first + index) * kChunk);
    return later;
  }
};

// A tile has 64 rows of a multiple of 64 numbers; 64 columns are kSpan contiguous bytes, in the 128-byte swizzle.
constexpr int kSpan = kChunk * 64 * 2;
__device__ __forceinline__ int InTile(int row, int piece) { return piece / 8 * kSpan + Piece<64>(row, piece % 8); }

// FetchRows starts the copy of the first `tokens` rows of `from`, `step` numbers apart, and writes zeros for others; of
// kWidth numbers the first `width` exist.
template <int kWidth, class T>
__device__ __forceinline__ void FetchRows(uint32_t to, const T* from, int64_t step, int tokens, int width) {
  constexpr int kPieces = kWidth / 8, kRows = kThreads / kPieces;
  const int thread = threadIdx.x % kThreads, piece = thread % kPieces;
  int row = thread / kPieces;
  const T* at = from + row * step + piece * 8;
#pragma unroll 2
  for (int i = 0; i < kChunk / kRows; ++i) {
    const bool is = row < tokens && piece * 8 < width;
    Copy(to + InTile(row, piece), is ? at : from, is);
    row += kRows, at += kRows * step;
  }
}

// Straight and Turned are the addresses of a lane for LoadMatrices and LoadTransposed of the right operand: 16 columns
// of the product, 16 deep. Straight: a stored row is a column of the product; Turned: a stored row is an index of
// depth.
__device__ __forceinline__ uint32_t Straight(uint32_t at, int column, int depth, int lane) {
  return at + InTile(column + lane % 8 + lane / 16 * 8, depth / 8 + lane / 8 % 2);
}
__device__ __forceinline__ uint32_t Turned(uint32_t at, int column, int depth, int lane) {
  return at + InTile(depth + lane % 16, column / 8 + lane / 16);
}

// Left is the address of a lane for LoadMatrices of a left operand: 16 stored rows, 16 deep.
__device__ __forceinline__ uint32_t Left(uint32_t at, int row, int depth, int lane) {
  return at + InTile(row + lane % 16, depth / 8 + lane / 16);
}

}  // namespace
}  // namespace mojo
