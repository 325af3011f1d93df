// Shared parts of kernels on mma.sync: copies into shared memory, matrix loads from it, the warp multiplication.
#pragma once

#include "cuda/common.cuh"

namespace mojo {

// Copy starts a copy of 16 bytes into shared memory, or writes zeros if `is` is false.
__device__ __forceinline__ void Copy(uint32_t to, const void* from, bool is) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is ? 16 : 0));
}
// CopyFew starts a copy of 4 or 8 bytes.
template <int kBytes>
__device__ __forceinline__ void CopyFew(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes));
}
__device__ __forceinline__ void EndGroup() { asm volatile("cp.async.commit_group;"); }
template <int kGroups>
__device__ __forceinline__ void WaitForGroups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Piece is the offset of a 16-byte piece in a row of kWidth 16-bit numbers. Pieces are swizzled so that eight pieces
// read at once are in different banks.
template <int kWidth>
__device__ __forceinline__ int Piece(int row, int piece) {
  return row * (kWidth * 2) + (piece ^ (row & 7)) * 16;
}

// LoadMatrices loads four 8 x 8 matrices of 16-bit numbers; each lane holds the address of one row.
__device__ __forceinline__ void LoadMatrices(uint32_t (&v)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address));
}
// LoadTransposed is the same with each matrix transposed.
__device__ __forceinline__ void LoadTransposed(uint32_t (&v)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address));
}

// Transposed is an 8 x 8 matrix of 16-bit numbers, two in each lane as sums lie, transposed over the warp.
__device__ __forceinline__ uint32_t Transposed(uint32_t v) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(v));
  return out;
}

// ToWord returns two adjacent 16-bit numbers as an operand has them, and ToTwo the numbers of a word.
template <class V>
__device__ __forceinline__ uint32_t ToWord(V two) {
  uint32_t word;
  memcpy(&word, &two, 4);
  return word;
}
template <class T>
__device__ __forceinline__ Two<T> ToTwo(uint32_t word) {
  Two<T> two;
  memcpy(&two, &word, 4);
  return two;
}

// Packed is two numbers as an operand has them.
template <class T>
__device__ __forceinline__ uint32_t Packed(float a, float b) {
  const Two<T> two = FromFloats<T>(a, b);
  uint32_t word;
  memcpy(&word, &two, 4);
  return word;
}

// Multiply adds the product of 16 rows and 8 columns, 16 deep, to sum.
template <class T>
__device__ __forceinline__ void Multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void Multiply<BFloat>(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void Multiply<Half>(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace mojo
