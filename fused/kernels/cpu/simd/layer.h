// Inner loops of AddLayerNorm.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/norm.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// Within is v with zeros in the lanes behind the end of a row.
MOJO_INLINE F32 Within(Whole, F32 v) { return v; }
MOJO_INLINE F32 Within(Part part, F32 v) {
  return Select(LaneNumbers() - static_cast<int32_t>(part.count) < I32{}, v, F32{});
}

// Share returns p if it points to the type of the other pointer, else null.
template <class T>
MOJO_INLINE T* Share(T* p, const T*) {
  return p;
}
template <class T, class Y>
MOJO_INLINE Y* Share(T*, const Y*) {
  return nullptr;
}

// LayerRows is the loop over rows. T is the stored type of x, residual, x_bias and sum, Y of the others. The first pass
// stores the sum as it is normalized: in sum itself, or in y, whose type holds the rounded sum. The other passes read
// it from the nearest cache.
template <class T, class Y, bool kXBias>
void LayerRows(const LayerArgs& args, size_t begin, size_t end) {
  const size_t width = args.width;
  const T* x_bias = static_cast<const T*>(args.x_bias);
  const Y* scale = static_cast<const Y*>(args.scale);
  const Y* bias = static_cast<const Y*>(args.bias);
  for (size_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * width;
    const T* residual = static_cast<const T*>(args.residual) + row * width;
    Y* y = static_cast<Y*>(args.y) + row * width;
    T* sum = args.sum == nullptr ? nullptr : static_cast<T*>(args.sum) + row * width;
    const Y* shared = Share(sum, y);
    const Y* normed = shared == nullptr ? y : shared;
    const auto added = [=](auto lanes, size_t i) MOJO_LAMBDA {
      F32 v = Load(lanes, x + i);
      if (kXBias) v = Round(x, v + Load(lanes, x_bias + i));
      v = Round(x, v + Load(lanes, residual + i));
      if (sum != nullptr) Store(lanes, sum + i, v);
      if (shared == nullptr) Store(lanes, y + i, v);
      return Round(y, v);
    };
    const float total = SumOver(width, added, [](F32 v, F32 all) MOJO_LAMBDA { return all + v; });
    float average = total / static_cast<float>(width);
    if (!__builtin_isfinite(total)) average = MeanOf<false>(width, Added<Y>{normed});
    const F32 mean = Set(average);
    const auto centered = [=](auto lanes, size_t i)
                              MOJO_LAMBDA { return Within(lanes, Load(lanes, normed + i) - mean); };
    const F32 inv = InverseRoot(SumOfSquares(width, centered), width, args.epsilon, centered);
    ForEachVector(width, [=](auto lanes, size_t i) MOJO_LAMBDA {
      Store(lanes, y + i, Fma(centered(lanes, i) * inv, Load(lanes, scale + i), Load(lanes, bias + i)));
    });
  }
}

template <class T, class Y>
void Layer(const LayerArgs& args, size_t begin, size_t end) {
  if (args.x_bias == nullptr) {
    LayerRows<T, Y, false>(args, begin, end);
  } else {
    LayerRows<T, Y, true>(args, begin, end);
  }
}

inline LayerFn PickLayer(ElementType x, ElementType y) {
  switch (y) {
    case kFloat32: return x == y ? Layer<float, float> : nullptr;
    case kFloat16: return x == y ? Layer<Half, Half> : x == kFloat32 ? Layer<float, Half> : nullptr;
    case kBFloat16: return x == y ? Layer<BFloat, BFloat> : x == kFloat32 ? Layer<float, BFloat> : nullptr;
  }
  return nullptr;
}

}  // namespace MOJO_ISA
}  // namespace mojo
