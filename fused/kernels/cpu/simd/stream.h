// Copies that bypass the processor's caches.
#pragma once

#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

#if defined(__AVX512F__)
MOJO_INLINE void StoreAround(char* to, F32 v) { _mm512_stream_ps(reinterpret_cast<float*>(to), v); }
#elif defined(__AVX2__)
MOJO_INLINE void StoreAround(char* to, F32 v) { _mm256_stream_ps(reinterpret_cast<float*>(to), v); }
#endif

// Stream copies bytes. It writes memory without reading it first and keeps the contents of the caches; the next reader
// reads from memory. Meanwhile it prefetches as many bytes behind the source.
static inline void Stream(const void* from, void* to, size_t bytes) {
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to);
#if defined(__AVX2__)
  const size_t before = -reinterpret_cast<uintptr_t>(target) % sizeof(F32);
  if (before < bytes) {
    __builtin_memcpy(target, source, before);
    const size_t end = before + (bytes - before) / sizeof(F32) * sizeof(F32);
    for (size_t i = before; i < end; i += sizeof(F32)) {
      F32 v;
      __builtin_prefetch(source + bytes + i, 0, 2);
      __builtin_memcpy(&v, source + i, sizeof(v));
      StoreAround(target + i, v);
    }
    _mm_sfence();  // other threads see these stores before later ones
    source += end;
    target += end;
    bytes -= end;
  }
#endif
  __builtin_memcpy(target, source, bytes);
}

}  // namespace MOJO_ISA
}  // namespace mojo
