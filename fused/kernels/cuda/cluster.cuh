// Clusters of blocks, which store into each other's shared memory: compute capability 9.0 and later. On other devices
// these functions do nothing, and no cluster is launched.
#pragma once

#include "cuda/common.cuh"

namespace mojo {

// A ByteCount is an mbarrier in 8 bytes of shared memory. It counts, once, the bytes that other blocks store.
typedef unsigned long long ByteCount;

// InitByteCount is called by one thread, before the blocks of the cluster synchronize.
__device__ __forceinline__ void InitByteCount(const ByteCount* count) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(SharedAddress(count))
      : "memory");
#endif
}
// ExpectBytes is called by one thread: it sets the number of bytes to wait for.
__device__ __forceinline__ void ExpectBytes(const ByteCount* count, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(count)), "r"(bytes)
               : "memory");
#endif
}
__device__ __forceinline__ void WaitForBytes(const ByteCount* count) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n\t"
      ".reg .pred done;\n\t"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n\t"
      "@!done bra again;\n\t"
      "}" ::"r"(SharedAddress(count))
      : "memory");
#endif
}

// ArriveAtCluster and WaitForCluster are called by all threads. The wait ends when all blocks have arrived or ended.
// ReleaseToCluster arrives and shows the thread's stores to those who wait.
__device__ __forceinline__ void ArriveAtCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void ReleaseToCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void WaitForCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// InBlock is the address of p in another block of the cluster.
__device__ __forceinline__ uint32_t InBlock(const void* p, int block) {
  uint32_t there = 0;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(SharedAddress(p)), "r"(block));
#endif
  return there;
}

// StoreThere stores in another block and adds the bytes to its count.
__device__ __forceinline__ void StoreThere(uint32_t to, float4 v, uint32_t count) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(count)
               : "memory");
#endif
}
__device__ __forceinline__ void StoreThere(uint32_t to, float2 v, uint32_t count) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to), "f"(v.x),
               "f"(v.y), "r"(count)
               : "memory");
#endif
}

}  // namespace mojo
