// The row layout that the rotating ops share on the CPU.
#pragma once

#include <memory>

#include "cpu/simd/kernels.h"
#include "rotary/common/rotary_embedding.h"

namespace mojo {

// ElementSize is the bytes of an element.
inline size_t ElementSize(ElementType type) { return type == kFloat32 ? 4 : 2; }

// RotaryTensors are the tensors of one run. cos and sin have y's type, x may have another.
struct RotaryTensors {
  RotaryLayout layout;
  size_t x_size, y_size;  // of an element
  const void* x;
  const void* cos;
  const void* sin;
  void* y;

  // EachRun calls run with the rows from row to end - 1, in runs along the innermost leading dim, along which cos and
  // sin move by a fixed step.
  template <class Run>
  void EachRun(size_t row, size_t end, Run run) const {
    const size_t inner = layout.rank - 1;
    RotaryArgs args;
    args.width = layout.width;
    args.first = layout.first;
    args.half = layout.rotated / 2;
    args.cos_step = layout.cos_step[inner];
    args.sin_step = layout.sin_step[inner];
    args.cos_wide = layout.cos_wide;
    args.sin_wide = layout.sin_wide;
    while (row < end) {
      // The row's index along each dim, from the innermost outwards.
      size_t rest = row;
      size_t cos_at = 0, sin_at = 0, first = 0;
      for (size_t i = layout.rank; i-- > 0;) {
        const size_t index = rest % layout.dims[i];
        rest /= layout.dims[i];
        cos_at += index * layout.cos_step[i];
        sin_at += index * layout.sin_step[i];
        if (i == inner) first = index;
      }
      args.count = layout.dims[inner] - first;
      if (args.count > end - row) args.count = end - row;
      args.x = static_cast<const char*>(x) + row * layout.width * x_size;
      args.y = static_cast<char*>(y) + row * layout.width * y_size;
      args.cos = static_cast<const char*>(cos) + cos_at * y_size;
      args.sin = static_cast<const char*>(sin) + sin_at * y_size;
      run(args);
      row += args.count;
    }
  }

  // MoveOutOfPlace copies x into copy and reads it from there if y overlaps x. It returns false if memory runs out.
  bool MoveOutOfPlace(std::unique_ptr<char[]>* copy);
};

}  // namespace mojo
