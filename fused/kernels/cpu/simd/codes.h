// Pools of 8-bit codes: numbers of int8 and float8e4m3fn as elements of rows, and the codes of new rows.
#pragma once

#include "cpu/simd/attention.h"
#include "cpu/simd/norm_quantize.h"
#include "cpu/simd/unpack.h"

namespace mojo {
namespace MOJO_ISA {

// Encoded is a vector of codes.
MOJO_INLINE I32 Encoded(const Int8Code*, F32 v) { return ToInt8(v); }
MOJO_INLINE I32 Encoded(const E4M3Code*, F32 v) { return ToFloat8(v); }

// Encode writes the codes of n numbers divided by a scale.
template <class T, class Code>
void Encode(const void* row, float scale, void* codes, size_t n) {
  const T* x = static_cast<const T*>(row);
  const Code* kind = nullptr;
  auto* to = static_cast<uint8_t*>(codes);
  ForEachVector(n, [=](auto lanes, size_t i)
                       MOJO_LAMBDA { StoreBytes(lanes, to + i, Encoded(kind, Load(lanes, x + i) / scale)); });
}

// Exact is the number of a code that Load returned: it reads the codes of NaN as 480.
MOJO_INLINE F32 Exact(const Int8Code*, F32 v) { return v; }
MOJO_INLINE F32 Exact(const E4M3Code*, F32 v) {
  return Select(FromBits(Bits(v) & 0x7fffffffu) == Set(480), FromBits(SetBits(0x7fc00000)), v);
}

// Recode replaces n codes by those of their numbers times a factor.
template <class Code>
void Recode(void* codes, float factor, size_t n) {
  Code* const c = static_cast<Code*>(codes);
  auto* to = static_cast<uint8_t*>(codes);
  ForEachVector(n, [=](auto lanes, size_t i)
                       MOJO_LAMBDA { StoreBytes(lanes, to + i, Encoded(c, Exact(c, Load(lanes, c + i)) * factor)); });
}

// Greatest is the greatest magnitude of n numbers, or NaN if there is one.
template <class T>
float Greatest(const void* row, size_t n) {
  const T* x = static_cast<const T*>(row);
  return GreatestMagnitude(n, [=](auto lanes, size_t i) MOJO_LAMBDA { return Load(lanes, x + i); });
}

template <class T, class Code>
constexpr PoolFns kPoolOf = {Greatest<T>, Encode<T, Code>, Recode<Code>, AddTile<Code>, PackBlock<Code>};

inline const PoolFns* PickPool(ElementType type, bool float8) {
  return OfType(type, [=](auto t) {
    using T = decltype(t);
    return float8 ? &kPoolOf<T, E4M3Code> : &kPoolOf<T, Int8Code>;
  });
}

}  // namespace MOJO_ISA
}  // namespace mojo
