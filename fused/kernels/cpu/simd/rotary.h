// Inner loops of RotaryEmbedding.
#ifndef MOJO_KERNELS_CPU_SIMD_ROTARY_H_
#define MOJO_KERNELS_CPU_SIMD_ROTARY_H_

#include "cpu/simd/kernels.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// RotateRows has no fused multiply-add: the contract rounds each product. Both halves are read
// before either is written, so y may be x's buffer.
template <class T>
void RotateRows(const RotaryArgs& args) {
  const size_t half = args.half;
  for (size_t row = 0; row < args.count; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * 2 * half;
    const T* cos = static_cast<const T*>(args.cos) + row * args.cos_step;
    const T* sin = static_cast<const T*>(args.sin) + row * args.sin_step;
    T* y = static_cast<T*>(args.y) + row * 2 * half;
    ForEachVector(half, [&](auto lanes, size_t i) MOJO_LAMBDA {
      const F32 low = Load(lanes, x + i);
      const F32 high = Load(lanes, x + half + i);
      const F32 cos_low = Load(lanes, cos + i);
      const F32 cos_high = Load(lanes, cos + args.cos_high + i);
      const F32 sin_low = Load(lanes, sin + i);
      const F32 sin_high = Load(lanes, sin + args.sin_high + i);
      Store(lanes, y + i, Round(y, low * cos_low) - Round(y, high * sin_low));
      Store(lanes, y + half + i, Round(y, high * cos_high) + Round(y, low * sin_high));
    });
  }
}

inline RotaryFn PickRotary(ElementType type) {
  switch (type) {
    case kFloat32:
      return RotateRows<float>;
    case kFloat16:
      return RotateRows<Half>;
    case kBFloat16:
      return RotateRows<BFloat>;
  }
  return nullptr;
}

}  // namespace MOJO_ISA
}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SIMD_ROTARY_H_
