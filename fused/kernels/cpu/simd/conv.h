// Inner loops of CausalConv.
#ifndef MOJO_KERNELS_CPU_SIMD_CONV_H_
#define MOJO_KERNELS_CPU_SIMD_CONV_H_

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

// A step of one token takes a vector of channels at a time if the convolution is at most this wide.
constexpr size_t kStepWidth = 8;

// ConvStep is the step of one token for kLanes channels, in the same order of operations as ConvTokens.
template <class T>
MOJO_INLINE F32 ConvStep(const ConvRow<T>* rows) {
  float x[kStepWidth][kLanes], w[kStepWidth][kLanes];
  const size_t width = rows->width, skipped = rows->kept - (width - 1);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t j = 0; j < width; ++j) {
      x[j][lane] = rows[lane].At(skipped + j);
      w[j][lane] = One(rows[lane].weight + j);
    }
  }
  F32 sum{};
  for (size_t j = 0; j < width; ++j) sum = Fma(Load(w[j]), Load(x[j]), sum);
  return sum;
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
  if (args.tokens == 1 && args.width <= kStepWidth) {
    for (; r + kLanes <= end; r += kLanes) {
      ConvRow<T> rows[kLanes];
      float biases[kLanes];
      for (size_t lane = 0; lane < kLanes; ++lane) {
        rows[lane] = row(r + lane);
        biases[lane] = bias(r + lane);
      }
      const F32 z = ConvStep(rows) + Load(biases);
      Store(y + r, args.silu ? silu(z) : z);
      for (size_t lane = 0; present != nullptr && lane < kLanes; ++lane) {
        rows[lane].Keep(present + (r + lane) * args.kept);
      }
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
  switch (type) {
    case kFloat32: return Conv<float>;
    case kFloat16: return Conv<Half>;
    case kBFloat16: return Conv<BFloat>;
  }
  return nullptr;
}

}  // namespace MOJO_ISA
}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SIMD_CONV_H_
