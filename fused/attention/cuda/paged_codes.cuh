// Codes of a pool as operands of mma.sync. A word has four codes of a lane, and becomes two pairs of 16-bit numbers:
// no number is rounded. The codes of float8e4m3fn are the upper bytes of smaller floats: their exponents are moved into
// place, and kFactor is what the numbers are too small by.
#pragma once

#include "attention/cuda/paged_attention.cuh"
#include "cuda/mma.cuh"

namespace mojo {
namespace paged {

// Select builds a word of bytes of a and b, by four numbers of bytes.
template <unsigned kBytes>
__device__ __forceinline__ uint32_t Select(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, kBytes);
}

// Pairs<T, C>::Get returns the codes at bytes kFirst and kSecond of a word.
template <class T, class C>
struct Pairs {
  static constexpr float kFactor = 1;
};

// 1024 + n has the code n in its lowest byte, if n is made positive by adding 128.
template <>
struct Pairs<Half, Int8Code> {
  static constexpr float kFactor = 1;
  template <int kFirst, int kSecond>
  static __device__ __forceinline__ uint32_t Get(uint32_t codes) {
    const uint32_t word = Select<kFirst | 0x40 | kSecond << 8 | 0x4000>(codes ^ 0x80808080u, 0x64646464u);
    return ToWord(__hsub2(ToTwo<Half>(word), ToTwo<Half>(0x64806480u)));
  }
};

// A code is its lower seven bits, minus 128 if the highest is set. 128 + n has those bits in its lowest ones, and 128
// becomes 256 with the highest bit in its place.
template <>
struct Pairs<BFloat, Int8Code> {
  static constexpr float kFactor = 1;
  template <int kFirst, int kSecond>
  static __device__ __forceinline__ uint32_t Get(uint32_t codes) {
    const uint32_t word = Select<kFirst | 0x40 | kSecond << 8 | 0x4000>(codes, 0x43434343u);
    return ToWord(__hsub2(ToTwo<BFloat>(word & 0xff7fff7fu), ToTwo<BFloat>(word & 0xff80ff80u)));
  }
};

// A float16 has one more bit of exponent, whose bias is greater by 8.
template <>
struct Pairs<Half, E4M3Code> {
  static constexpr float kFactor = 256;
  template <int kFirst, int kSecond>
  static __device__ __forceinline__ uint32_t Get(uint32_t codes) {
    const uint32_t word = Select<0x4 | kFirst << 4 | 0x400 | kSecond << 12>(codes, 0);
    return (word & 0x80008000u) | (word >> 1 & 0x3f803f80u);
  }
};

// A bfloat16 has four more bits, whose bias is greater by 120. Small codes would be subnormal without the product.
template <>
struct Pairs<BFloat, E4M3Code> {
  static constexpr float kFactor = 1;
  template <int kFirst, int kSecond>
  static __device__ __forceinline__ uint32_t Get(uint32_t codes) {
    const uint32_t word = Select<0x4 | kFirst << 4 | 0x400 | kSecond << 12>(codes, 0);
    const uint32_t moved = (word & 0x80008000u) | (word >> 4 & 0x07f007f0u);
    return ToWord(__hmul2(ToTwo<BFloat>(moved), ToTwo<BFloat>(0x7b807b80u)));
  }
};

}  // namespace paged
}  // namespace mojo
