// Inner loops of LinearAttention.
#ifndef MOJO_KERNELS_CPU_SIMD_LINEAR_SCAN_H_
#define MOJO_KERNELS_CPU_SIMD_LINEAR_SCAN_H_

#include "cpu/simd/kernels.h"
#include "cpu/simd/math.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// So many vectors of columns go through the tokens together, to hide the latency of the sums.
constexpr size_t kScanVectors = 4;
constexpr size_t kScanColumns = kScanVectors * kLanes;

// ScanStrip takes kVectors vectors of columns, from number first on, through all tokens. Each token reads and writes
// the state once: while the new state is at hand, the next token's product of its key with it is summed.
template <class T, size_t kVectors, bool kBeta, class Lanes>
void ScanStrip(const LinearScanArgs& args, size_t first, Lanes lanes, size_t width) {
  const size_t depth = args.depth, columns = args.columns;
  float* const room = args.room == nullptr ? nullptr : args.room + first * depth;
  const float* from = args.past == nullptr ? nullptr : args.past + first;
  size_t from_step = columns;
  if (from == nullptr) {
    for (size_t i = 0; i < depth * width; ++i) room[i] = 0;
    from = room;
    from_step = width;
  }
  const auto factor = [&args](size_t t, size_t i)
                          MOJO_LAMBDA { return args.factors[t * args.factors_step + (args.by_channel ? i : 0)]; };
  F32 found[kVectors] = {};  // the product of the key with the decayed state
  if (kBeta) {
    for (size_t i = 0; i < depth; ++i) {
      const F32 key = Set(args.k[i] * factor(0, i));
      for (size_t n = 0; n < kVectors; ++n) {
        found[n] = Fma(key, Load(lanes, from + i * from_step + n * kLanes), found[n]);
      }
    }
  }
  for (size_t t = 0; t < args.tokens; ++t) {
    const bool last = t + 1 == args.tokens;
    const bool out = last && args.present != nullptr;
    float* const to = out ? args.present + first : room;
    const size_t to_step = out ? columns : width;
    const float* const q = args.q + t * args.q_step;
    const float* const k = args.k + t * args.k_step;
    const float* const next_k = last ? k : k + args.k_step;
    const size_t next = last ? t : t + 1;
    const T* const v = static_cast<const T*>(args.v) + t * args.v_step + first;
    T* const y = static_cast<T*>(args.y) + t * args.y_step + first;
    F32 update[kVectors], row[kVectors] = {};
    for (size_t n = 0; n < kVectors; ++n) {
      update[n] = Load(lanes, v + n * kLanes);
      if (kBeta) update[n] = (update[n] - found[n]) * Set(args.beta[t * args.beta_step]);
      found[n] = F32{};
    }
    for (size_t i = 0; i < depth; ++i) {
      const F32 decay = Set(factor(t, i)), key = Set(k[i]), query = Set(q[i]);
      const F32 next_key = Set(kBeta ? next_k[i] * factor(next, i) : 0.0f);
      for (size_t n = 0; n < kVectors; ++n) {
        const F32 state = Fma(key, update[n], decay * Load(lanes, from + i * from_step + n * kLanes));
        Store(lanes, to + i * to_step + n * kLanes, state);
        row[n] = Fma(query, state, row[n]);
        if (kBeta) found[n] = Fma(next_key, state, found[n]);
      }
    }
    const F32 scale = Set(args.scale);
    for (size_t n = 0; n < kVectors; ++n) Store(lanes, y + n * kLanes, row[n] * scale);
    for (size_t head = 1; head < args.queries; ++head) {
      F32 other[kVectors] = {};
      for (size_t i = 0; i < depth; ++i) {
        const F32 query = Set(q[head * depth + i]);
        for (size_t n = 0; n < kVectors; ++n) {
          other[n] = Fma(query, Load(lanes, to + i * to_step + n * kLanes), other[n]);
        }
      }
      for (size_t n = 0; n < kVectors; ++n) Store(lanes, y + head * columns + n * kLanes, other[n] * scale);
    }
    from = to;
    from_step = to_step;
  }
}

template <class T, bool kBeta>
void ScanColumns(const LinearScanArgs& args, size_t begin, size_t end) {
  for (; begin + kScanColumns <= end; begin += kScanColumns) {
    ScanStrip<T, kScanVectors, kBeta>(args, begin, Whole{}, kScanColumns);
  }
  for (; begin + kLanes <= end; begin += kLanes) ScanStrip<T, 1, kBeta>(args, begin, Whole{}, kLanes);
  if (begin < end) ScanStrip<T, 1, kBeta>(args, begin, Part{end - begin}, end - begin);
}

template <class T>
void LinearScan(const LinearScanArgs& args, size_t begin, size_t end) {
  if (args.beta == nullptr) {
    ScanColumns<T, false>(args, begin, end);
  } else {
    ScanColumns<T, true>(args, begin, end);
  }
}

inline LinearScanFn PickLinearScan(ElementType type) {
  switch (type) {
    case kFloat32: return LinearScan<float>;
    case kFloat16: return LinearScan<Half>;
    case kBFloat16: return LinearScan<BFloat>;
  }
  return nullptr;
}

template <class T>
void UnitOf(const T* from, float* to, size_t n, float epsilon) {
  F32 squares{};
  ForEachVector(n, [&](auto lanes, size_t i) MOJO_LAMBDA {
    const F32 v = Load(lanes, from + i);  // zeros behind the end
    squares = Fma(v, v, squares);
  });
  const F32 inverse = Set(1 / __builtin_sqrtf(Sum(squares) + epsilon));
  ForEachVector(n, [=](auto lanes, size_t i) MOJO_LAMBDA { Store(lanes, to + i, Load(lanes, from + i) * inverse); });
}

// Unit divides a vector by the root of the sum of its squares and epsilon.
static inline void Unit(ElementType type, const void* from, float* to, size_t n, float epsilon) {
  switch (type) {
    case kFloat32: return UnitOf(static_cast<const float*>(from), to, n, epsilon);
    case kFloat16: return UnitOf(static_cast<const Half*>(from), to, n, epsilon);
    case kBFloat16: return UnitOf(static_cast<const BFloat*>(from), to, n, epsilon);
  }
}

// PreciseExponential is e^x to little more than half a unit in the last place: a factor of the state is applied once
// for each token, so the error of Exponential would add up. It is 0 if e^x is not a normal number; a NaN stays.
MOJO_INLINE F32 PreciseExponential(F32 x) {
  const F32 v = AtLeast(AtMost(x, Set(89.69f)), Set(kLeastExponent));
  const Integer n = FromSum(Fma(v, Set(0x1.715476p0f), Shift()));
  // The logarithm of 2 in two parts. The product with the first one is exact.
  const F32 r = Fma(n.value, Set(0x1.bd0106p-13f), Fma(n.value, Set(-0x1.63p-1f), v));
  F32 q = Set(1.0f / 5040);
  const float coefficients[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f};
  for (const float c : coefficients) q = Fma(q, r, Set(c));
  const F32 power = Fma(r * r, q, r) + 1.0f;
  return Select(x < Set(kLeastExponent), F32{}, power * 2.0f * FromBits(Bits(n.sum) << 23));
}

// Powers writes e^x of n numbers.
static inline void Powers(const float* from, float* to, size_t n) {
  ForEachVector(
      n, [=](auto lanes, size_t i) MOJO_LAMBDA { Store(lanes, to + i, PreciseExponential(Load(lanes, from + i))); });
}

}  // namespace MOJO_ISA
}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SIMD_LINEAR_SCAN_H_
