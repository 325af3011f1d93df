// Inner loops of LinearAttention.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/math.h"
#include "cpu/simd/vec.h"
#include "cpu/simd/widen.h"

namespace mojo {
namespace MOJO_ISA {

// A task of several tokens takes so many columns.
constexpr size_t kTaskVectors = 4;
constexpr size_t kScanColumns = kTaskVectors * kLanes;
// A step of one token takes more columns together: memory is read fastest in whole rows of the state.
constexpr size_t kStepVectors = kLanes == 16 ? 8 : 16;
// More tokens go through fewer columns at a time: for keys of 128 channels, 16 KB of state stay in the nearest cache.
constexpr size_t kScanVectors = kLanes == 16 ? 2 : 4;

// The state is stored divided by the product of the latest factors. Each token changes this number instead of the whole
// state: a delta rule takes three multiplications for a number of the state and a token instead of four, other rules
// two instead of three. The state is multiplied by the product after the last token, and before the product leaves
// these bounds.
constexpr double kLeastProduct = 0x1p-16;
constexpr double kMostProduct = 0x1p16;

// ScanDecay is the factor of the state in a pass: nothing, a number, or a number for each channel of the keys.
enum class ScanDecay { kNone, kOne, kEach };

// ScanPass is one pass over the state of a strip, for one or two tokens.
struct ScanPass {
  const float* k[2];
  const float* q[2];
  const float* decay;
  const float* next_k;  // of the token after them
  const float* next_decay;
  const float* from;
  size_t from_step;
  float* to;  // may be from
  size_t to_step;
  size_t depth;
};

// PassOver adds the products of keys and updates to the state, and sums the products of the new state with the queries
// and, if kBeta, with the next key. Each token changes a row while the row is in registers.
template <ScanDecay kDecay, bool kBeta, size_t kTokens, size_t kVectors, class Lanes>
MOJO_INLINE void PassOver(const ScanPass& p, Lanes lanes, const F32 (&update)[kTokens][kVectors],
                          F32 (&sums)[kTokens][kVectors], F32 (&found)[kVectors]) {
#pragma GCC unroll 2  // the stores of a row beside the loads of the next one
  for (size_t i = 0; i < p.depth; ++i) {
    F32 state[kVectors];
    for (size_t n = 0; n < kVectors; ++n) state[n] = Load(lanes, p.from + i * p.from_step + n * kLanes);
    if (kDecay != ScanDecay::kNone) {
      const F32 decay = Set(p.decay[kDecay == ScanDecay::kEach ? i : 0]);
      for (size_t n = 0; n < kVectors; ++n) state[n] = state[n] * decay;
    }
    for (size_t t = 0; t < kTokens; ++t) {
      const F32 key = Set(p.k[t][i]), query = Set(p.q[t][i]);
      for (size_t n = 0; n < kVectors; ++n) state[n] = Fma(key, update[t][n], state[n]);
      for (size_t n = 0; n < kVectors; ++n) sums[t][n] = Fma(query, state[n], sums[t][n]);
    }
    if (kBeta) {
      const F32 key = Set(kDecay == ScanDecay::kEach ? p.next_k[i] * p.next_decay[i] : p.next_k[i]);
      for (size_t n = 0; n < kVectors; ++n) found[n] = Fma(key, state[n], found[n]);
    }
    for (size_t n = 0; n < kVectors; ++n) Store(lanes, p.to + i * p.to_step + n * kLanes, state[n]);
  }
}

// LoadColumns and StoreColumns move kVectors vectors of columns, from number first of row on, of the stored type. They
// run once for each token, so the loops over the state are compiled once for all types.
template <class Lanes, size_t kVectors>
MOJO_INLINE void LoadColumns(ElementType type, Lanes lanes, const void* row, size_t first, F32 (&to)[kVectors]) {
  OfType(type, [&](auto t) MOJO_LAMBDA {
    const auto* const from = static_cast<const decltype(t)*>(row) + first;
    for (size_t n = 0; n < kVectors; ++n) to[n] = Load(lanes, from + n * kLanes);
  });
}
template <class Lanes, size_t kVectors>
MOJO_INLINE void StoreColumns(ElementType type, Lanes lanes, void* row, size_t first, const F32 (&from)[kVectors]) {
  OfType(type, [&](auto t) MOJO_LAMBDA {
    auto* const to = static_cast<decltype(t)*>(row) + first;
    for (size_t n = 0; n < kVectors; ++n) Store(lanes, to + n * kLanes, from[n]);
  });
}

// Rule selects the loop of a strip. kOneToken takes a single token with or without beta. The others take any number of
// tokens: kBeta with beta, kSum and kPairs without it, kPairs two tokens at a time.
enum class Rule { kOneToken, kBeta, kSum, kPairs };

// ScanState is kVectors vectors of columns, from number first on, on their way through the tokens.
template <Rule kRule, size_t kVectors, class Lanes>
struct ScanState {
  const LinearScanArgs& args;
  size_t first;
  Lanes lanes;
  size_t width;
  const float* from;
  size_t from_step;
  double product = 1;        // of the factors that the stored state lacks
  F32 found[kVectors] = {};  // the product of the next key with the stored state

  MOJO_INLINE bool HasBeta() const { return kRule == Rule::kOneToken ? args.beta != nullptr : kRule == Rule::kBeta; }
  static bool Fits(double product) { return product >= kLeastProduct && product <= kMostProduct; }
  MOJO_INLINE double Factor(size_t t) const {
    return args.by_channel ? 1 : static_cast<double>(args.factors[t * args.factors_step]);
  }
  MOJO_INLINE const float* Factors(size_t t) const { return args.factors + t * args.factors_step; }
  MOJO_INLINE float* Room() const { return args.room == nullptr ? nullptr : args.room + first * args.depth; }

  // Find sums the product of the first token's key with the state.
  MOJO_INLINE void Find() {
    for (size_t i = 0; i < args.depth; ++i) {
      const F32 key = Set(args.by_channel ? args.k[i] * args.factors[i] : args.k[i]);
      for (size_t n = 0; n < kVectors; ++n) {
        found[n] = Fma(key, Load(lanes, from + i * from_step + n * kLanes), found[n]);
      }
    }
  }

  // Write stores the sums of a query, whose state lacks the factor.
  MOJO_INLINE void Write(size_t t, size_t head, double factor, const F32 (&sums)[kVectors]) const {
    const F32 scale = Set(static_cast<float>(static_cast<double>(args.scale) * factor));
    F32 y[kVectors];
    for (size_t n = 0; n < kVectors; ++n) y[n] = sums[n] * scale;
    StoreColumns(args.type, lanes, args.y, t * args.y_step + head * args.columns + first, y);
  }

  // Take takes kTokens tokens, from number t on. Two of them do not leave the bounds of the product, have one query
  // each, and are followed by others.
  template <size_t kTokens>
  MOJO_INLINE void Take(size_t t) {
    const size_t after = t + kTokens, next = after < args.tokens ? after : t;
    const bool last = after == args.tokens, out = last && args.present != nullptr;
    ScanPass pass{};
    pass.next_k = args.k + next * args.k_step;
    pass.next_decay = Factors(next);
    pass.from = from, pass.from_step = from_step;
    pass.to = out ? args.present + first : Room();
    pass.to_step = out ? args.columns : width;
    pass.depth = args.depth;
    double products[kTokens];
    F32 update[kTokens][kVectors], sums[kTokens][kVectors] = {};
    float decay = 1;
    bool decays = false;
    for (size_t i = 0; i < kTokens; ++i) {
      pass.k[i] = args.k + (t + i) * args.k_step;
      pass.q[i] = args.q + (t + i) * args.q_step;
      product *= Factor(t + i);
      const F32 before = Set(-static_cast<float>(product));
      if (kTokens == 1 && (last || !Fits(product))) {
        decay = static_cast<float>(product);
        decays = product != 1;
        product = 1;
      }
      products[i] = product;
      const float up = static_cast<float>(1 / product);
      const F32 by = Set(HasBeta() ? args.beta[(t + i) * args.beta_step] * up : up);
      LoadColumns(args.type, lanes, args.v, (t + i) * args.v_step + first, update[i]);
      if (HasBeta()) {
        for (size_t n = 0; n < kVectors; ++n) update[i][n] = Fma(found[n], before, update[i][n]);
      }
      for (size_t n = 0; n < kVectors; ++n) {
        update[i][n] = update[i][n] * by;
        found[n] = F32{};
      }
    }
    constexpr bool kFinds = kRule == Rule::kBeta;
    if constexpr (kTokens == 2) {
      PassOver<ScanDecay::kNone, kFinds>(pass, lanes, update, sums, found);
    } else if (args.by_channel) {
      pass.decay = Factors(t);
      PassOver<ScanDecay::kEach, kFinds>(pass, lanes, update, sums, found);
    } else if (decays) {
      pass.decay = &decay;
      PassOver<ScanDecay::kOne, kFinds>(pass, lanes, update, sums, found);
    } else {
      PassOver<ScanDecay::kNone, kFinds>(pass, lanes, update, sums, found);
    }
    from = pass.to;
    from_step = pass.to_step;
    for (size_t i = 0; i < kTokens; ++i) Write(t + i, 0, products[i], sums[i]);
    for (size_t head = 1; head < args.queries; ++head) {
      F32 other[kVectors] = {};
      for (size_t i = 0; i < args.depth; ++i) {
        const F32 query = Set(pass.q[0][head * args.depth + i]);
        for (size_t n = 0; n < kVectors; ++n) {
          other[n] = Fma(query, Load(lanes, from + i * from_step + n * kLanes), other[n]);
        }
      }
      Write(t, head, product, other);
    }
  }

  MOJO_INLINE void Run() {
    if (HasBeta()) Find();
    if (kRule == Rule::kOneToken) return Take<1>(0);
    for (size_t t = 0; t < args.tokens;) {
      if constexpr (kRule == Rule::kPairs) {
        const double one = product * Factor(t);
        if (!args.by_channel && args.queries == 1 && t + 2 < args.tokens && Fits(one) && Fits(one * Factor(t + 1))) {
          Take<2>(t);
          t += 2;
          continue;
        }
      }
      Take<1>(t++);
    }
  }
};

// ScanStrip takes kVectors vectors of columns, from number first on, through all tokens. Each token reads and writes
// the state once: while the new state is at hand, the next token's product of its key with it is summed.
template <Rule kRule, size_t kVectors, class Lanes>
void ScanStrip(const LinearScanArgs& args, size_t first, Lanes lanes, size_t width) {
  ScanState<kRule, kVectors, Lanes> strip{args, first, lanes, width, nullptr, 0};
  if (args.resumes || args.past == nullptr) {
    for (size_t i = 0; !args.resumes && i < args.depth * width; ++i) strip.Room()[i] = 0;
    strip.from = strip.Room(), strip.from_step = width;
  } else {
    strip.from = args.past + first, strip.from_step = args.columns;
  }
  strip.Run();
}

template <bool kBeta>
void ScanColumns(const LinearScanArgs& args, size_t begin, size_t end) {
  constexpr size_t kStepColumns = kStepVectors * kLanes;
  constexpr Rule kAny = kBeta ? Rule::kBeta : Rule::kPairs;
  // Without pairs, if they are taken through fewer columns.
  constexpr Rule kTask = kAny == Rule::kPairs && kTaskVectors != kScanVectors ? Rule::kSum : kAny;
  for (; args.tokens == 1 && begin + kStepColumns <= end; begin += kStepColumns) {
    ScanStrip<Rule::kOneToken, kStepVectors>(args, begin, Whole{}, kStepColumns);
  }
  for (; (args.tokens == 1 || args.by_channel) && begin + kScanColumns <= end; begin += kScanColumns) {
    ScanStrip<kTask, kTaskVectors>(args, begin, Whole{}, kScanColumns);
  }
  for (; begin + kScanVectors * kLanes <= end; begin += kScanVectors * kLanes) {
    ScanStrip<kAny, kScanVectors>(args, begin, Whole{}, kScanVectors * kLanes);
  }
  for (; begin + kLanes <= end; begin += kLanes) ScanStrip<kAny, 1>(args, begin, Whole{}, kLanes);
  if (begin < end) ScanStrip<kAny, 1>(args, begin, Part{end - begin}, end - begin);
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

// kScanChannels channels go through all tokens together: with 16 keys their states are 4 KB, in the nearest cache.
constexpr size_t kScanChannels = 64;

// ScanSome takes the channels from begin to end - 1, at most kScanChannels, through all tokens. Vectors lie along the
// keys, and a row of Y is a vector of channels. Each token reads its decays once and writes no factors.
template <bool kByKey>
MOJO_INLINE void ScanSome(const ChannelScanArgs& args, size_t begin, size_t end) {
  const size_t depth = args.depth, count = end - begin;
  float values[kScanChannels], results[kScanChannels];
  const float* from = args.past;
  for (size_t i = begin * depth; from == nullptr && i < end * depth; ++i) args.room[i] = 0;
  if (from == nullptr) from = args.room;
  for (size_t t = 0; t < args.tokens; ++t) {
    const float *const q = args.q + t * depth, *const k = args.k + t * depth;
    const float* const decay = args.decay + t * args.channels * (kByKey ? depth : 1);
    float* const to = t + 1 == args.tokens && args.present != nullptr ? args.present : args.room;
    const size_t bytes = (t * args.channels + begin) * (args.type == kFloat32 ? 4 : 2);
    ToFloat32(args.type, static_cast<const char*>(args.v) + bytes, values, count);
    ForEachVector(count, [&](auto some, size_t at) MOJO_LAMBDA {
      const size_t first = begin + at;
      F32 factors = Set(1), sums{};
      if (!kByKey && args.decay != nullptr) factors = PreciseExponential(Load(some, decay + first));
      for (size_t j = 0; j < Lanes(some); ++j) {
        const size_t row = (first + j) * depth;
        const F32 value = Set(values[at + j]);
        F32 sum{};
        ForEachVector(depth, [&](auto lanes, size_t i) MOJO_LAMBDA {
          const F32 factor = kByKey ? PreciseExponential(Load(lanes, decay + row + i)) : Set(factors[j]);
          const F32 state = Fma(Load(lanes, k + i), value, Load(lanes, from + row + i) * factor);
          sum = Fma(Load(lanes, q + i), state, sum);
          Store(lanes, to + row + i, state);
        });
        sums[j] = Sum(sum);
      }
      Store(some, results + at, sums * args.scale);
    });
    FromFloat32(args.type, results, static_cast<char*>(args.y) + bytes, count);
    from = to;
  }
}

static inline void ChannelScan(const ChannelScanArgs& args, size_t begin, size_t end) {
  for (; begin < end; begin += kScanChannels) {
    const size_t stop = end - begin < kScanChannels ? end : begin + kScanChannels;
    if (args.by_key) {
      ScanSome<true>(args, begin, stop);
    } else {
      ScanSome<false>(args, begin, stop);
    }
  }
}

// ScanColumn takes a state of one column through all tokens. Its vectors lie along the keys.
static inline void ScanColumn(const LinearScanArgs& args) {
  const float* from = args.resumes ? args.room : args.past;
  for (size_t i = 0; from == nullptr && i < args.depth; ++i) args.room[i] = 0;
  if (from == nullptr) from = args.room;
  for (size_t t = 0; t < args.tokens; ++t) {
    const float* const k = args.k + t * args.k_step;
    const float* const q = args.q + t * args.q_step;
    const float* const factors = args.factors + t * args.factors_step;
    const auto decayed = [&](auto lanes, size_t i) MOJO_LAMBDA {
      return Load(lanes, from + i) * (args.by_channel ? Load(lanes, factors + i) : Set(*factors));
    };
    F32 value[1];
    LoadColumns(args.type, Part{1}, args.v, t * args.v_step, value);
    F32 update = Set(value[0][0]);
    if (args.beta != nullptr) {
      F32 found{};
      ForEachVector(args.depth, [&](auto lanes, size_t i)
                                    MOJO_LAMBDA { found = Fma(Load(lanes, k + i), decayed(lanes, i), found); });
      update = (update - Sum(found)) * args.beta[t * args.beta_step];
    }
    float* const to = t + 1 == args.tokens && args.present != nullptr ? args.present : args.room;
    F32 sums{};
    ForEachVector(args.depth, [&](auto lanes, size_t i) MOJO_LAMBDA {
      const F32 state = Fma(Load(lanes, k + i), update, decayed(lanes, i));
      sums = Fma(Load(lanes, q + i), state, sums);
      Store(lanes, to + i, state);
    });
    from = to;
    const auto write = [&](size_t head, F32 products) MOJO_LAMBDA {
      const F32 y[1] = {Set(Sum(products) * args.scale)};
      StoreColumns(args.type, Part{1}, args.y, t * args.y_step + head, y);
    };
    write(0, sums);
    for (size_t head = 1; head < args.queries; ++head) {
      F32 other{};
      ForEachVector(args.depth, [&](auto lanes, size_t i) MOJO_LAMBDA {
        other = Fma(Load(lanes, q + head * args.depth + i), Load(lanes, to + i), other);
      });
      write(head, other);
    }
  }
}

static inline void LinearScan(const LinearScanArgs& args, size_t begin, size_t end) {
  if (args.columns == 1) {
    if (begin < end) ScanColumn(args);
  } else if (args.beta == nullptr) {
    ScanColumns<false>(args, begin, end);
  } else {
    ScanColumns<true>(args, begin, end);
  }
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
  return OfType(type, [=](auto t) { return UnitOf(static_cast<const decltype(t)*>(from), to, n, epsilon); });
}

// Powers writes e^x of n numbers.
static inline void Powers(const float* from, float* to, size_t n) {
  ForEachVector(
      n, [=](auto lanes, size_t i) MOJO_LAMBDA { Store(lanes, to + i, PreciseExponential(Load(lanes, from + i))); });
}

}  // namespace MOJO_ISA
}  // namespace mojo
