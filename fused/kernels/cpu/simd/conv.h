// Inner loops of CausalConv.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/math.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// One reads one number as float32.
template <class T>
MOJO_INLINE float One(const T* p) {
  return Load(Part{1}, p)[0];
}
MOJO_INLINE float One(const float* p) { return *p; }

// ConvRow is one channel of one sequence: the kept tokens, then the new ones.
template <class T>
struct ConvRow {
  const T* x;
  const T* past;  // null: zeros
  const T* weight;
  size_t tokens, width, kept;

  // At is number i of the kept tokens and the new ones.
  MOJO_INLINE float At(size_t i) const {
    if (i >= kept) return One(x + (i - kept));
    return past == nullptr ? 0 : One(past + i);
  }

  // Keep writes the last tokens. present may be past's memory.
  MOJO_INLINE void Keep(T* present) const {
    for (size_t i = 0; i < kept; ++i) {
      const size_t from = tokens + i;
      present[i] = from >= kept ? x[from - kept] : past == nullptr ? T{} : past[from];
    }
  }
};

// Wide is count numbers as float32: read in place, or widened to room.
MOJO_INLINE const float* Wide(const float* from, float*, size_t) { return from; }
template <class T>
MOJO_INLINE const float* Wide(const T* from, float* room, size_t count) {
  ForEachVector(count, [=](auto lanes, size_t i) MOJO_LAMBDA { Store(lanes, room + i, Load(lanes, from + i)); });
  return room;
}

// ConvSteps is one token of count channels of a sequence, the rows from r on. It takes the numbers of each channel one
// by one, because they are few and lie side by side, and the sums of kLanes channels together. The order of operations
// is the same as in the loop over tokens.
template <class T, size_t kWidth, size_t kKept>
void ConvSteps(const ConvArgs& args, const Silu& silu, size_t r, size_t channel, size_t count) {
  const T* const x = static_cast<const T*>(args.x) + r;
  const T* const weight = static_cast<const T*>(args.weight) + channel * kWidth;
  const T* const bias = args.bias == nullptr ? nullptr : static_cast<const T*>(args.bias) + channel;
  const T* const past = static_cast<const T*>(args.past) + r * kKept;
  T* const present = args.present == nullptr ? nullptr : static_cast<T*>(args.present) + r * kKept;
  T* const y = static_cast<T*>(args.y) + r;
  ForEachVector(count, [=](auto lanes, size_t first) MOJO_LAMBDA {
    const size_t rows = Lanes(lanes);
    float xs[kLanes], weight_room[kLanes * kWidth], past_room[kLanes * kKept], sums[kLanes];
    Store(xs, Load(lanes, x + first));
    const float* const weights = Wide(weight + first * kWidth, weight_room, rows * kWidth);
    const float* const pasts = Wide(past + first * kKept, past_room, rows * kKept);
    for (size_t row = 0; row < rows; ++row) {
      float sum = 0;
      for (size_t j = 0; j + 1 < kWidth; ++j) {
        sum = Fma(weights[row * kWidth + j], pasts[row * kKept + (kKept + 1 - kWidth) + j], sum);
      }
      sums[row] = Fma(weights[row * kWidth + kWidth - 1], xs[row], sum);
    }
    F32 z = Load(lanes, sums);
    z = bias == nullptr ? z + 0.0f : z + Load(lanes, bias + first);
    Store(lanes, y + first, args.silu ? silu(z) : z);
    for (size_t row = 0; present != nullptr && row < rows; ++row) {
      T kept[kKept];
      for (size_t i = 0; i + 1 < kKept; ++i) kept[i] = past[(first + row) * kKept + i + 1];
      kept[kKept - 1] = x[first + row];
      for (size_t i = 0; i < kKept; ++i) present[(first + row) * kKept + i] = kept[i];
    }
  });
}

// PickConvSteps returns null for sizes that no model has.
template <class T>
auto PickConvSteps(size_t width, size_t kept) {
  if (width == 3 && kept == 2) return ConvSteps<T, 3, 2>;
  if (width == 3 && kept == 3) return ConvSteps<T, 3, 3>;
  if (width == 4 && kept == 3) return ConvSteps<T, 4, 3>;
  if (width == 4 && kept == 4) return ConvSteps<T, 4, 4>;
  return static_cast<decltype(&ConvSteps<T, 4, 4>)>(nullptr);
}

template <class T>
void Conv(const ConvArgs& args, size_t begin, size_t end) {
  const Silu silu(1);
  const size_t before = args.width - 1;
  const auto row = [&args](size_t r) MOJO_LAMBDA {
    const size_t channel = r % args.channels;
    return ConvRow<T>{static_cast<const T*>(args.x) + r * args.tokens,
                      args.past == nullptr ? nullptr : static_cast<const T*>(args.past) + r * args.kept,
                      static_cast<const T*>(args.weight) + channel * args.width,
                      args.tokens,
                      args.width,
                      args.kept};
  };
  const auto bias = [&args](size_t r) MOJO_LAMBDA {
    if (args.bias == nullptr) return 0.0f;
    return One(static_cast<const T*>(args.bias) + r % args.channels);
  };
  T* const y = static_cast<T*>(args.y);
  T* const present = static_cast<T*>(args.present);
  size_t r = begin;
  const auto steps = PickConvSteps<T>(args.width, args.kept);
  if (args.tokens == 1 && args.past != nullptr && steps != nullptr) {
    while (r < end) {
      const size_t channel = r % args.channels;
      const size_t count = end - r < args.channels - channel ? end - r : args.channels - channel;
      steps(args, silu, r, channel, count);
      r += count;
    }
  }
  for (; r < end; ++r) {
    const ConvRow<T> the = row(r);
    const F32 plus = Set(bias(r));
    T* const to = y + r * args.tokens;
    const size_t edge = args.tokens < before ? args.tokens : before, skipped = args.kept - before;
    for (size_t t = 0; t < edge; ++t) {  // these tokens read the kept ones
      F32 z{};
      for (size_t j = 0; j < args.width; ++j) {
        z = Fma(Set(One(the.weight + j)), Set(the.At(skipped + t + j)), z);
      }
      z = z + plus;
      Store(Part{1}, to + t, args.silu ? silu(z) : z);
    }
    if (args.tokens > edge) {
      ForEachVector(args.tokens - edge, [&](auto lanes, size_t t) MOJO_LAMBDA {
        F32 z{};
        for (size_t j = 0; j < args.width; ++j) {
          z = Fma(Set(One(the.weight + j)), Load(lanes, the.x + t + j), z);
        }
        z = z + plus;
        Store(lanes, to + edge + t, args.silu ? silu(z) : z);
      });
    }
    if (present != nullptr) the.Keep(present + r * args.kept);
  }
}

inline ConvFn PickConv(ElementType type) {
  return OfType(type, [](auto t) { return Conv<decltype(t)>; });
}

}  // namespace MOJO_ISA
}  // namespace mojo
