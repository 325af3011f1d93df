// How products are cut into tiles.
#ifndef MOJO_KERNELS_CPU_SIMD_TILE_H_
#define MOJO_KERNELS_CPU_SIMD_TILE_H_

#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// Count is a number as a constant.
template <int kCount>
struct Count {
  static constexpr int value = kCount;
};

// WithCount calls body with count, from kLeast to kMost, as a constant.
template <int kLeast, int kMost, class Body>
MOJO_INLINE void WithCount(size_t count, Body body) {
  if constexpr (kLeast < kMost) {
    if (count > kLeast) return WithCount<kLeast + 1, kMost>(count, body);
  }
  body(Count<kLeast>{});
}

// ForEachTile cuts items into tiles of about one size, from kLeast (1, or half of kMost if there are more than kMost
// items) to kMost, and calls body(Count, first item) for each.
template <int kLeast, int kMost, class Body>
MOJO_INLINE void ForEachTile(size_t items, Body body) {
  for (size_t tiles = (items + kMost - 1) / kMost, first = 0; tiles > 0; --tiles) {
    const size_t count = (items - first + tiles - 1) / tiles;
    WithCount<kLeast, kMost>(count, [&](auto constant) MOJO_LAMBDA { body(constant, first); });
    first += count;
  }
}

}  // namespace MOJO_ISA
}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SIMD_TILE_H_
