// The inverse of a triangle, and tiles of products, for linear_chunk_solve.cuh.
#pragma once

#include "linearattention/cuda/linear_chunks.cuh"

namespace mojo {
namespace {

constexpr int kStep = kChunk + 4;  // of the rows of A: lanes' numbers are in different banks
constexpr int kHalfStep = 32 + 4;  // of the rows of a product in between
constexpr int kSquareBytes = kChunk * kStep * 4, kBetweenBytes = 32 * kHalfStep * 4;

// ToTensor32 is v in the 19 bits that tensor cores take of a float32.
__device__ __forceinline__ uint32_t ToTensor32(float v) {
  uint32_t word;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(v));
  return word;
}

// AddTile adds the product of two tiles of 16 x 16 numbers of float32 in shared memory to sum.
__device__ __forceinline__ void AddTile(float (&sum)[2][4], const float* a, int a_step, const float* b, int b_step,
                                        int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int depth = 0; depth < 16; depth += 8) {
    const uint32_t a0 = ToTensor32(a[g * a_step + depth + t]), a1 = ToTensor32(a[(g + 8) * a_step + depth + t]);
    const uint32_t a2 = ToTensor32(a[g * a_step + depth + t + 4]), a3 = ToTensor32(a[(g + 8) * a_step + depth + t + 4]);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const uint32_t b0 = ToTensor32(b[(depth + t) * b_step + 8 * n + g]);
      const uint32_t b1 = ToTensor32(b[(depth + t + 4) * b_step + 8 * n + g]);
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(sum[n][0]), "+f"(sum[n][1]), "+f"(sum[n][2]), "+f"(sum[n][3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
  }
}

// PutTile stores sign times the sums of a tile.
__device__ __forceinline__ void PutTile(const float (&sum)[2][4], float sign, float* to, int step, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    *reinterpret_cast<float2*>(to + g * step + 8 * n + 2 * t) = make_float2(sign * sum[n][0], sign * sum[n][1]);
    *reinterpret_cast<float2*>(to + (g + 8) * step + 8 * n + 2 * t) = make_float2(sign * sum[n][2], sign * sum[n][3]);
  }
}

// Invert makes (I + A)^-1 of the strictly lower triangle A in a, in its place: blocks of 16 by forward substitution,
// one in each warp, then those below by T21 = -T22 A21 T11. between has 32 rows of kHalfStep.
__device__ __forceinline__ void Invert(float* a, float* between, int warp, int lane) {
  if (lane < 16) {
    float* block = a + 16 * warp * (kStep + 1);
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float sum = i == lane ? 1.0f : 0.0f;
#pragma unroll
      for (int m = 0; m < i; ++m) sum = fmaf(-block[i * kStep + m], x[m], sum);
      x[i] = sum;
    }
    __syncwarp(0xffff);
#pragma unroll
    for (int i = 0; i < 16; ++i) block[i * kStep + lane] = x[i];
  }
  __syncthreads();
  if (warp < 2) {
    float* upper = a + 32 * warp * (kStep + 1);
    float* below = upper + 16 * kStep;
    float* product = between + 16 * warp * kHalfStep;
    float sum[2][4] = {};
    AddTile(sum, below, kStep, upper, kStep, lane);
    PutTile(sum, 1, product, kHalfStep, lane);
    __syncwarp();
    float other[2][4] = {};
    AddTile(other, below + 16, kStep, product, kHalfStep, lane);
    PutTile(other, -1, below, kStep, lane);
  }
  __syncthreads();
  const int row = warp / 2 * 16, column = warp % 2 * 16;
  float* below = a + 32 * kStep;
  float sum[2][4] = {};
  for (int m = column; m < 32; m += 16) {
    AddTile(sum, below + row * kStep + m, kStep, a + m * kStep + column, kStep, lane);
  }
  PutTile(sum, 1, between + row * kHalfStep + column, kHalfStep, lane);
  __syncthreads();
  float other[2][4] = {};
  for (int m = 0; m <= row; m += 16) {
    AddTile(other, below + 32 + row * kStep + m, kStep, between + m * kHalfStep + column, kHalfStep, lane);
  }
  PutTile(other, -1, below + row * kStep + column, kStep, lane);
  __syncthreads();
}

// StoreTile stores 16 rows of up to 64 columns through a warp's 2 KB of shared memory.
template <class T>
__device__ __forceinline__ void StoreTile(const float (&sum)[8][4], char* stage, T* to, int step, int columns,
                                          int lane) {
  const int g = lane / 4, t = lane % 4;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    *reinterpret_cast<uint32_t*>(stage + Piece<64>(g, n) + 4 * t) = Packed<T>(sum[n][0], sum[n][1]);
    *reinterpret_cast<uint32_t*>(stage + Piece<64>(g + 8, n) + 4 * t) = Packed<T>(sum[n][2], sum[n][3]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 8 + 4 * i, piece = lane % 8;
    if (piece * 8 < columns) {
      *reinterpret_cast<uint4*>(to + row * step + piece * 8) =
          *reinterpret_cast<const uint4*>(stage + Piece<64>(row, piece));
    }
  }
}

// MultiplyAgain stores the product of 16 rows of a lower triangle with 64 columns, without zeros above its diagonal: a
// number of a later token that is not finite makes these NaN. Few chunks need it. It is not inline, so that the other
// chunks keep their registers.
template <class T>
__device__ __noinline__ void MultiplyAgain(const T* left, const char* right, T* to, int step, int columns) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int column = lane; column < columns && column < 64; column += 32) {
    for (int row = 0; row < 16; ++row) {
      float sum = 0;
      for (int j = 0; j <= 16 * warp + row; ++j) {
        const T number = reinterpret_cast<const T*>(right + InTile(j, column / 8))[column % 8];
        sum = fmaf(ToFloat(left[row * kChunk + j]), ToFloat(number), sum);
      }
      to[row * step + column] = FromFloat<T>(sum);
    }
  }
}

}  // namespace
}  // namespace mojo
