// The products of LatentAttention, a batch of matrix products by heads, in tiles of the rows of all sequences: 16 bit
// numbers by mma.sync if rows are multiples of 16 bytes, anything else in float32 arithmetic. The floor of few rows is
// reading w once, and of many rows the multiply-adds.
#include "attention/cuda/latent_product.cuh"

#include "cuda/mma.cuh"

namespace mojo {
namespace {

constexpr int kRows = 64;
constexpr size_t kNone = ~size_t{0};

// Places are the offsets of a tile's rows in x and in y, or kNone past the last row.
struct Places {
  size_t x[kRows], y[kRows];

  // Find reports whether there is any row; all threads of the block call it.
  __device__ __forceinline__ bool Find(const HeadProduct& p, size_t first_row, size_t head) {
    bool is = false;
    if (threadIdx.x < kRows) {
      const size_t row = first_row + threadIdx.x, b = row / p.rows, i = row - b * p.rows;
      is = b < p.batch && (p.lengths == nullptr || static_cast<int64_t>(i) < __ldg(p.lengths + b));
      x[threadIdx.x] = is ? b * p.x_steps.batch + head * p.x_steps.head + i * p.x_steps.row : kNone;
      y[threadIdx.x] = is ? b * p.y_steps.batch + head * p.y_steps.head + i * p.y_steps.row : kNone;
    }
    return __syncthreads_or(is);
  }
};

// CopyBehind copies the part of x's rows after depth to y, after its columns.
template <class Unit, class T>
__device__ __forceinline__ void CopyBehind(const HeadProduct& p, const Places& at) {
  constexpr size_t kElements = sizeof(Unit) / sizeof(T);
  const int units = static_cast<int>(p.copied / kElements);
  for (int i = threadIdx.x; i < kRows * units; i += blockDim.x) {
    const int row = i / units, unit = i % units;
    if (at.x[row] == kNone) continue;
    const T* const from = static_cast<const T*>(p.x) + at.x[row] + p.depth;
    T* const to = static_cast<T*>(p.y) + at.y[row] + p.columns;
    reinterpret_cast<Unit*>(to)[unit] = reinterpret_cast<const Unit*>(from)[unit];
  }
}

constexpr int kThreads = 128, kColumns = 128, kDeep = 64, kStages = 3;
constexpr int kRowBytes = kRows * kDeep * 2, kStageBytes = kRowBytes + kColumns * kDeep * 2;

// MultiplyHeads has 32 rows and 64 columns for each warp. kByDepth: w is contiguous along the depth.
//
// Registers: 160. Shared memory: 72 KB, and 1 KB of places.
template <class T, bool kByDepth>
__global__ __launch_bounds__(kThreads, 3) void MultiplyHeads(const __grid_constant__ HeadProduct p, int column_tiles) {
  extern __shared__ __align__(128) char memory[];
  __shared__ Places at;
  WaitForPrevious();
  LetNextStart();
  const int tile = blockIdx.x / column_tiles, first_column = blockIdx.x % column_tiles * kColumns;
  const size_t head = blockIdx.y;
  if (!at.Find(p, static_cast<size_t>(tile) * kRows, head)) return;
  const int depth = static_cast<int>(p.depth), columns = static_cast<int>(p.columns) - first_column;
  const int steps = (depth + kDeep - 1) / kDeep;
  const T* const x = static_cast<const T*>(p.x);
  const T* const w = static_cast<const T*>(p.w) + head * p.w_head + first_column * p.w_column;
  const uint32_t shared = SharedAddress(memory);
  const auto fill = [&](int step) {
    const int deep = step * kDeep;
    if (step < steps) {
      const uint32_t to = shared + step % kStages * kStageBytes, w_to = to + kRowBytes;
      const int piece = threadIdx.x % 8;
#pragma unroll
      for (int r = threadIdx.x / 8; r < kRows; r += kThreads / 8) {
        const bool is = at.x[r] != kNone && deep + piece * 8 < depth;
        Copy(to + Piece<kDeep>(r, piece), is ? x + at.x[r] + deep + piece * 8 : nullptr, is);
      }
      if constexpr (kByDepth) {
#pragma unroll
        for (int c = threadIdx.x / 8; c < kColumns; c += kThreads / 8) {
          const bool is = c < columns && deep + piece * 8 < depth;
          Copy(w_to + Piece<kDeep>(c, piece), is ? w + c * p.w_column + deep + piece * 8 : nullptr, is);
        }
      } else {
        const int column = threadIdx.x % 16;
#pragma unroll
        for (int d = threadIdx.x / 16; d < kDeep; d += kThreads / 16) {
          const bool is = column * 8 < columns && deep + d < depth;
          Copy(w_to + Piece<kColumns>(d, column), is ? w + (deep + d) * p.w_deep + column * 8 : nullptr, is);
        }
      }
    }
    EndGroup();
  };
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 64 * 32, warp_column = threadIdx.x / 32 % 2 * 64;
  float sum[2][8][4] = {};
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) fill(s);
  for (int step = 0; step < steps; ++step) {
    WaitForGroups<kStages - 2>();
    __syncthreads();
    fill(step + kStages - 1);
    const uint32_t x_at = shared + step % kStages * kStageBytes, w_at = x_at + kRowBytes;
#pragma unroll
    for (int d = 0; d < kDeep / 16; ++d) {
      uint32_t left[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        LoadMatrices(left[m], x_at + Piece<kDeep>(warp_row + m * 16 + lane % 16, d * 2 + lane / 16));
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        uint32_t right[4];
        const int column = warp_column + c * 16;
        if constexpr (kByDepth) {
          LoadMatrices(right, w_at + Piece<kDeep>(column + lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
        } else {
          LoadTransposed(right, w_at + Piece<kColumns>(d * 16 + lane % 16, column / 8 + lane / 16));
        }
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          Multiply<T>(sum[m][2 * c], left[m], right[0], right[1]);
          Multiply<T>(sum[m][2 * c + 1], left[m], right[2], right[3]);
        }
      }
    }
  }
  WaitForGroups<0>();
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const size_t to = at.y[warp_row + m * 16 + i * 8 + lane / 4];
      if (to == kNone) continue;
      T* const y = static_cast<T*>(p.y) + to + first_column;
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const int column = warp_column + c * 8 + lane % 4 * 2;
        if (column >= columns) break;
        *reinterpret_cast<Two<T>*>(y + column) = FromFloats<T>(sum[m][c][i * 2], sum[m][c][i * 2 + 1]);
      }
    }
  }
  if (columns <= kColumns) CopyBehind<uint4, T>(p, at);
}

constexpr int kAnyThreads = 256, kAnyColumns = 64, kAnyDeep = 16, kAnyPitch = 68;

// MultiplyHeadsAny has 4 rows and 4 columns for each thread.
//
// Registers: 48. Shared memory: 10 KB.
template <class T>
__global__ __launch_bounds__(kAnyThreads, 5) void MultiplyHeadsAny(const __grid_constant__ HeadProduct p,
                                                                   int column_tiles) {
  __shared__ Places at;
  __shared__ __align__(16) float rows[kAnyDeep * kAnyPitch], matrix[kAnyDeep * kAnyPitch];
  WaitForPrevious();
  LetNextStart();
  const int tile = blockIdx.x / column_tiles, first_column = blockIdx.x % column_tiles * kAnyColumns;
  const size_t head = blockIdx.y;
  if (!at.Find(p, static_cast<size_t>(tile) * kRows, head)) return;
  const int depth = static_cast<int>(p.depth), columns = static_cast<int>(p.columns) - first_column;
  const T* const w = static_cast<const T*>(p.w) + head * p.w_head + first_column * p.w_column;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const bool by_depth = p.w_deep == 1;
  float sum[4][4] = {};
  for (int deep = 0; deep < depth; deep += kAnyDeep) {
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < kRows * kAnyDeep; i += kAnyThreads) {
      const int r = i / kAnyDeep, d = i % kAnyDeep;
      const bool is = at.x[r] != kNone && deep + d < depth;
      rows[d * kAnyPitch + r] = is ? ToFloat(static_cast<const T*>(p.x)[at.x[r] + deep + d]) : 0.0f;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < kAnyColumns * kAnyDeep; i += kAnyThreads) {
      const int c = by_depth ? i / kAnyDeep : i % kAnyColumns, d = by_depth ? i % kAnyDeep : i / kAnyColumns;
      const bool is = c < columns && deep + d < depth;
      matrix[d * kAnyPitch + c] = is ? ToFloat(w[c * p.w_column + (deep + d) * p.w_deep]) : 0.0f;
    }
    __syncthreads();
#pragma unroll 4
    for (int d = 0; d < kAnyDeep; ++d) {
      const float4 left = *reinterpret_cast<const float4*>(rows + d * kAnyPitch + ty * 4);
      const float4 right = *reinterpret_cast<const float4*>(matrix + d * kAnyPitch + tx * 4);
      const float l[4] = {left.x, left.y, left.z, left.w}, r[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += l[i] * r[j];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const size_t to = at.y[ty * 4 + i];
    if (to == kNone) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = tx * 4 + j;
      if (column < columns) static_cast<T*>(p.y)[to + first_column + column] = FromFloat<T>(sum[i][j]);
    }
  }
  if (columns <= kAnyColumns) CopyBehind<T, T>(p, at);
}

// Tiles is the grid of row and column tiles. It has at least one column tile, which copies the rest of the rows.
dim3 Tiles(const HeadProduct& p, int columns, int* column_tiles) {
  const size_t tiles = DivideUp(p.columns, columns);
  *column_tiles = tiles < 1 ? 1 : static_cast<int>(tiles);
  return dim3(static_cast<unsigned>(DivideUp(p.batch * p.rows, kRows) * *column_tiles), static_cast<unsigned>(p.heads));
}

template <class T, bool kByDepth>
cudaError_t RunTiles(const HeadProduct& p, cudaStream_t stream) {
  constexpr int kBytes = kStages * kStageBytes;
  const auto kernel = MultiplyHeads<T, kByDepth>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes)) return e;
  int column_tiles;
  const dim3 grid = Tiles(p, kColumns, &column_tiles);
  return Launch(kernel, grid, kThreads, kBytes, stream, p, column_tiles);
}

template <class T>
cudaError_t RunAny(const HeadProduct& p, cudaStream_t stream) {
  int column_tiles;
  const dim3 grid = Tiles(p, kAnyColumns, &column_tiles);
  return Launch(MultiplyHeadsAny<T>, grid, kAnyThreads, 0, stream, p, column_tiles);
}

// InPieces reports whether rows and the matrix can be read and written in pieces of 16 bytes.
bool InPieces(const HeadProduct& p) {
  if (p.type == kMojoFloat32 || !AllAligned(16, p.x, p.w, p.y)) return false;
  const size_t stride = p.w_deep == 1 ? p.w_column : p.w_deep;
  bool all = true;
  for (const size_t n : {p.x_steps.batch, p.x_steps.head, p.x_steps.row, p.y_steps.batch, p.y_steps.head, p.y_steps.row,
                         p.w_head, stride, p.depth, p.columns, p.copied}) {
    all = all && n % 8 == 0;
  }
  return all;
}

template <class T>
cudaError_t Run(const HeadProduct& p, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    if (InPieces(p)) return p.w_deep == 1 ? RunTiles<T, true>(p, stream) : RunTiles<T, false>(p, stream);
  }
  return RunAny<T>(p, stream);
}

}  // namespace

cudaError_t MultiplyByHeads(const HeadProduct& p, cudaStream_t stream) {
  if (p.batch * p.heads * p.rows == 0 || p.columns + p.copied == 0) return cudaSuccess;
  return OfType(p.type, [&](auto t) { return Run<decltype(t)>(p, stream); });
}

}  // namespace mojo
