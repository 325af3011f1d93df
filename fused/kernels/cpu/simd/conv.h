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

// SumSteps writes the sums of one token of count channels. It takes the numbers of each channel one by one, because
// they are few and lie side by side. The order of operations is the same as in the loop over tokens.
template <size_t kWidth, size_t kKept>
void SumSteps(const float* x, const float* weight, const float* past, size_t count, float* sums) {
  for (size_t row = 0; row < count; ++row) {
    float sum = 0;
    for (size_t j = 0; j + 1 < kWidth; ++j) {
      sum = Fma(weight[row * kWidth + j], past[row * kKept + (kKept + 1 - kWidth) + j], sum);
    }
    sums[row] = Fma(weight[row * kWidth + kWidth - 1], x[row], sum);
  }
}

// PickSumSteps returns null for sizes that no model has.
inline auto PickSumSteps(size_t width, size_t kept) {
  if (width == 3 && kept == 2) return SumSteps<3, 2>;
  if (width == 3 && kept == 3) return SumSteps<3, 3>;
  if (width == 4 && kept == 3) return SumSteps<4, 3>;
  if (width == 4 && kept == 4) return SumSteps<4, 4>;
  return static_cast<decltype(&SumSteps<4, 4>)>(nullptr);
}

// KeepStep writes the last kKept tokens of count channels. present may be past's memory.
template <size_t kKept, class T>
void KeepStep(const T* x, const T* past, T* present, size_t count) {
  for (size_t row = 0; row < count; ++row) {
    T kept[kKept];
    for (size_t i = 0; i + 1 < kKept; ++i) kept[i] = past[row * kKept + i + 1];
    kept[kKept - 1] = x[row];
    for (size_t i = 0; i < kKept; ++i) present[row * kKept + i] = kept[i];
  }
}

// ConvSteps takes at most so many channels, whose numbers stay in the nearest cache.
constexpr size_t kStepChannels = 256;

// ConvSteps is one token of count channels of a sequence, the rows from r on.
template <class T, class SumFn>
void ConvSteps(const ConvArgs& args, const Silu& silu, SumFn sum, size_t r, size_t channel, size_t count) {
  const T* const x = static_cast<const T*>(args.x) + r;
  const T* const weight = static_cast<const T*>(args.weight) + channel * args.width;
  const T* const bias = args.bias == nullptr ? nullptr : static_cast<const T*>(args.bias) + channel;
  const T* const past = static_cast<const T*>(args.past) + r * args.kept;
  T* const y = static_cast<T*>(args.y) + r;
  float x_room[kStepChannels], weight_room[kStepChannels * 4], past_room[kStepChannels * 4], sums[kStepChannels];
  sum(Wide(x, x_room, count), Wide(weight, weight_room, count * args.width), Wide(past, past_room, count * args.kept),
      count, sums);
  ForEachVector(count, [&](auto lanes, size_t i) MOJO_LAMBDA {
    F32 z = Load(lanes, sums + i);
    z = bias == nullptr ? z + 0.0f : z + Load(lanes, bias + i);
    Store(lanes, y + i, args.silu ? silu(z) : z);
  });
  if (args.present == nullptr) return;
  T* const present = static_cast<T*>(args.present) + r * args.kept;
  if (args.kept == 2) return KeepStep<2>(x, past, present, count);
  if (args.kept == 3) return KeepStep<3>(x, past, present, count);
  KeepStep<4>(x, past, present, count);
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
  const auto sum = PickSumSteps(args.width, args.kept);
  if (args.tokens == 1 && args.past != nullptr && sum != nullptr) {
    while (r < end) {
      const size_t channel = r % args.channels;
      size_t count = end - r < args.channels - channel ? end - r : args.channels - channel;
      if (count > kStepChannels) count = kStepChannels;
      ConvSteps<T>(args, silu, sum, r, channel, count);
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
