// The layout of a rotation, for all devices: only C++17, which nvcc compiles too.
#pragma once

#include <stddef.h>

namespace mojo {

// The most leading dimensions of a rotated tensor.
constexpr size_t kMaxRotaryDims = 16;

// RotaryLayout is the layout of cos and sin relative to X: the leading dims of X, outermost first, merged if that
// changes nothing, and the step, in elements, of cos and sin along each (0 if broadcast).
struct RotaryLayout {
  size_t rank = 0;  // merged dims
  size_t dims[kMaxRotaryDims] = {};
  size_t cos_step[kMaxRotaryDims] = {};
  size_t sin_step[kMaxRotaryDims] = {};
  size_t width = 0;       // last dim of X
  size_t first = 0;       // the first channel that is rotated
  size_t rotated = 0;     // how many are: even
  bool cos_wide = false;  // an element for each of them, rather than for each pair
  bool sin_wide = false;

  // Rows is the product of dims.
  size_t Rows() const {
    size_t rows = 1;
    for (size_t i = 0; i < rank; ++i) rows *= dims[i];
    return rows;
  }
};

}  // namespace mojo
