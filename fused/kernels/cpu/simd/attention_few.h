// Attention of a few rows, as in decode steps. Up to four rows at a time read keys and values in place. The floor is
// the memory read: keys * (width + value_width) elements.
#pragma once

#include "cpu/simd/attention_softmax.h"
#include "cpu/simd/product.h"
#include "cpu/simd/widen.h"

namespace mojo {
namespace MOJO_ISA {

template <class T>
constexpr size_t kValueStrip = kManyRegisters ? kAttentionBlock : 16 * sizeof(float) / sizeof(T);

// The first rows to read keys and values prefetch the ones so many bytes ahead: into the second-level cache as early as
// the latency of memory requires, and into the first-level cache just before use. The near prefetch has too few
// requests in flight to keep up with memory.
constexpr size_t kFarAhead = 12 << 10;
constexpr size_t kNearAhead = 2 << 10;
constexpr size_t kCacheLine = 64;

// InRegister keeps the compiler from reloading a number at each use.
MOJO_INLINE F32 InRegister(F32 v) {
#if defined(MOJO_EMULATE_AVX512)
  // No register is as wide.
#elif defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
  return v;
}

// QuadSums adds the lanes of four vectors within each four lanes: the first sum is a's, and so on.
MOJO_INLINE F32 QuadSums(F32 a, F32 b, F32 c, F32 d) {
  const F32 ab = EvensOfFour(a, b) + OddsOfFour(a, b), cd = EvensOfFour(c, d) + OddsOfFour(c, d);
  return EvensOfFour(ab, cd) + OddsOfFour(ab, cd);
}

// JoinedQuads adds the fours of each of kCount vectors; the sums of the first come first.
template <int kCount, class V>
MOJO_INLINE V JoinedQuads(const V* v) {
  if constexpr (kCount == 1) {
    return v[0];
  } else {
    const V a = JoinedQuads<kCount / 2>(v), b = JoinedQuads<kCount / 2>(v + kCount / 2);
    return EvenFours(a, b) + OddFours(a, b);
  }
}

// AskFor prefetches as many bytes as kVectors vectors at far.
template <int kVectors = 1, class T>
MOJO_INLINE void AskFor(const T* far) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kVectors * kLanes * sizeof(T); i += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const char*>(far) + i, 0, 2);
  }
}

// Ask prefetches for the reads kFarAhead and kNearAhead bytes ahead, as many bytes as kVectors vectors at row.
template <int kVectors = 1, class T>
MOJO_INLINE void Ask(const T* row) {
  const char* now = reinterpret_cast<const char*>(row);
#pragma GCC unroll 8
  for (size_t i = 0; i < kVectors * kLanes * sizeof(T); i += kCacheLine) {
    __builtin_prefetch(now + kFarAhead + i, 0, 2);
    __builtin_prefetch(now + kNearAhead + i);
  }
}

// ScoreRows writes the scores of count keys, at most kLanes, for kRows rows from row on. It multiplies four keys at a
// time with all rows. asks says whether to prefetch later keys.
template <class T, int kRows, bool kAll, class Keys>
void ScoreRows(const AttentionTile& t, size_t row, const Keys& keys, size_t count, bool asks, float* scores) {
  constexpr int kQuads = kLanes / 4;
  constexpr size_t kLine = kCacheLine / sizeof(T);
  const float* q = t.q + row * t.q_step;
  const size_t q_step = t.q_step, width = t.width;
  F32 quads[kRows][kQuads];
  for (int quad = 0; quad < kQuads; ++quad) {
    F32 sum[kRows][4] = {};
    const T *from[4], *far[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const size_t key = static_cast<size_t>(quad * 4 + k), one = kAll ? key : Smaller(key, count - 1);
      from[k] = keys[one];
      if constexpr (!Keys::kFollow) far[k] = keys.Far(one);
    }
    const auto multiply = [&](auto lanes, size_t c) MOJO_LAMBDA {
      F32 query[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) query[r] = InRegister(Load(q + r * q_step + c));
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const F32 key = InRegister(Load(lanes, from[k] + c));
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sum[r][k] = Fma(key, query[r], sum[r][k]);
      }
    };
    size_t c = 0;
    for (; c + kLine <= width; c += kLine) {
#pragma GCC unroll 4
      for (int k = 0; asks && k < 4; ++k) {
        if constexpr (Keys::kFollow) {
          Ask<kLine / kLanes>(from[k] + c);
        } else {
          AskFor<kLine / kLanes>(far[k] + c);
        }
      }
#pragma GCC unroll 8
      for (size_t i = 0; i < kLine; i += kLanes) multiply(Whole{}, c + i);
    }
    ForEachVector(width - c, [&](auto lanes, size_t i) MOJO_LAMBDA { multiply(lanes, c + i); });
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) quads[r][quad] = QuadSums(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) Store(scores + (row + r) * kAttentionBlock, JoinedQuads<kQuads>(quads[r]));
}

// ScoreAllRows is ScoreRows for all rows of a tile.
template <class T, class Keys>
void ScoreAllRows(const AttentionTile& t, const Keys& keys, size_t count, bool asks, float* scores) {
  size_t row = 0;
  const auto rows = [&](auto some, auto all) MOJO_LAMBDA {
    constexpr int kRows = decltype(some)::value;
    for (; row + kRows <= t.rows; row += kRows) {
      ScoreRows<T, kRows, decltype(all)::value == 1>(t, row, keys, count, asks && row == 0, scores);
    }
  };
  if (count == kLanes) {
    if constexpr (kManyRegisters) rows(Count<4>{}, Count<1>{});
    if (kManyRegisters || t.rows % 2 == 1) rows(Count<3>{}, Count<1>{});
    rows(Count<2>{}, Count<1>{});
    rows(Count<1>{}, Count<1>{});
  }
  rows(Count<1>{}, Count<0>{});
}

// ScoreKeys is ScoreAllRows of any type: if several rows read 16-bit keys, it widens them once for all.
template <class T, class Keys>
void ScoreKeys(const AttentionTile& t, const Keys& keys, size_t count, float* scores) {
  if (sizeof(T) != sizeof(float) && t.rows > 4) {
    for (size_t i = 0; i < count; ++i) {
      const T* from = keys[i];
      for (size_t c = 0; c < t.width; c += kCacheLine / sizeof(T)) {
        if constexpr (Keys::kFollow) {
          Ask(from + c);
        } else {
          AskFor(keys.Far(i) + c);
        }
      }
      Widened<T>(from, t.wide + i * t.q_step, t.width);
    }
    return ScoreAllRows<float>(t, Steps<float>{t.wide, t.q_step}, count, false, scores);
  }
  ScoreAllRows<T>(t, keys, count, true, scores);
}

// Strip is some keys of a block. The first strip starts the sums of the block, the last one adds them to the total.
struct Strip {
  size_t count;
  bool first, last;
};

// ValueTile sums the values of a strip times their weights, for kVectors vectors of channels from channel c on; the
// last vector may be partial.
template <class T, int kRows, int kVectors, class Lanes, class Values>
MOJO_INLINE void ValueTile(Lanes lanes, const AttentionTile& t, size_t row, const float* weights, const Values& values,
                           const Strip& strip, size_t c) {
  float* partial = t.partial + row * t.total_step + c;
  F32 sum[kRows][kVectors] = {};
  if (!strip.first) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Load(partial + r * t.total_step + v * kLanes);
    }
  }
  for (size_t j = 0; j < strip.count; ++j) {
    const T* from = values[j] + c;
    if constexpr (Values::kFollow) {
      if (row == 0) Ask<kVectors>(from);
    } else {
      if (row == 0) AskFor<kVectors>(values.Far(j) + c);
    }
    const auto value = [&](int v) MOJO_LAMBDA { return InRegister(Load(lanes, from + v * kLanes)); };
    const auto weight = [&](int r) MOJO_LAMBDA { return Set(weights[r * kAttentionBlock + j]); };
    if constexpr (kManyRegisters) {
      F32 all[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) all[v] = value(v);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const F32 one = weight(r);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[r][v] = Fma(one, all[v], sum[r][v]);
      }
    } else {
      F32 all[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) all[r] = InRegister(weight(r));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const F32 one = value(v);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sum[r][v] = Fma(all[r], one, sum[r][v]);
      }
    }
  }
  if (!strip.last) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) Store(partial + r * t.total_step + v * kLanes, sum[r][v]);
    }
    return;
  }
  float* total = t.total + row * t.total_step + c;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const F32 factor = Set(t.factors[row + r]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* to = total + r * t.total_step + v * kLanes;
      Store(to, Fma(Load(to), factor, sum[r][v]));
    }
  }
}

// ValueRows is ValueTile over all channels.
template <class T, int kRows, class Values>
void ValueRows(const AttentionTile& t, size_t row, const float* weights, const Values& values, const Strip& strip) {
  constexpr int kFit = kAttentionSums / kRows;
  constexpr int kVectors = kFit >= 8 ? 8 : kFit >= 4 ? 4 : 2, kFewer = kVectors < 4 ? kVectors : 4;
  size_t c = 0;
  const auto whole = [&](auto vectors) MOJO_LAMBDA {
    constexpr int kCount = decltype(vectors)::value;
    for (; c + kCount * kLanes <= t.value_width; c += kCount * kLanes) {
      ValueTile<T, kRows, kCount>(Whole{}, t, row, weights, values, strip, c);
    }
  };
  if constexpr (kVectors == 8) whole(Count<8>{});
  whole(Count<kFewer>{});
  whole(Count<1>{});
  if (c < t.value_width) ValueTile<T, kRows, 1>(Part{t.value_width - c}, t, row, weights, values, strip, c);
}

// AddValues adds the values of a strip of keys with the weights of all rows.
template <class T, class Values>
void AddValues(const AttentionTile& t, const Values& values, const Strip& strip, const float* weights) {
  size_t row = 0;
  const auto rows = [&](auto some) MOJO_LAMBDA {
    constexpr int kRows = decltype(some)::value;
    for (; row + kRows <= t.rows; row += kRows) {
      ValueRows<T, kRows>(t, row, weights + row * kAttentionBlock, values, strip);
    }
  };
  rows(Count<4>{});
  rows(Count<3>{});
  rows(Count<2>{});
  rows(Count<1>{});
}

// AddFewRows adds keys for few rows.
template <class T, class Rows>
void AddFewRows(const AttentionTile& t, const Rows& keys, const Rows& values) {
  size_t first = t.end, last = t.begin;
  for (size_t row = 0; row < t.rows; ++row) {
    first = Smaller(first, Larger(t.first[row], t.begin));
    last = Larger(last, Smaller(t.last[row], t.end));
  }
  for (size_t key = first; key < last; key += kAttentionBlock) {
    const size_t count = Smaller(last - key, kAttentionBlock);
    for (size_t j = 0; j < count; j += kLanes) {
      ScoreKeys<T>(t, keys.From(key + j), Smaller(count - j, kLanes), t.scores + j);
    }
    const size_t padded = (count + kLanes - 1) / kLanes * kLanes;
    const auto scale = [&](const float* scales) MOJO_LAMBDA {
      for (size_t row = 0; kIsCode<T> && row < t.rows; ++row) {
        Scale(t.scores + row * kAttentionBlock, scales + (key - t.begin), padded);
      }
    };
    scale(t.key_scales);
    Weigh(t, 0, t.rows, key, padded, t.scores);
    scale(t.value_scales);
    for (size_t j = 0; j < count; j += kValueStrip<T>) {
      const Strip strip{Smaller(count - j, kValueStrip<T>), j == 0, j + kValueStrip<T> >= count};
      AddValues<T>(t, values.From(key + j), strip, t.scores + j);
    }
  }
}

template <class T>
void AddFew(const AttentionTile& t) {
  const T *keys = static_cast<const T*>(t.keys), *values = static_cast<const T*>(t.values);
  if constexpr (!kIsCode<T>) {
    if (t.places == nullptr) return AddFewRows<T>(t, Steps<T>{keys, t.key_step}, Steps<T>{values, t.value_step});
  }
  AddFewRows<T>(t, Places<T>{keys, t.key_step, t.places, t.ahead}, Places<T>{values, t.value_step, t.places, t.ahead});
}

}  // namespace MOJO_ISA
}  // namespace mojo
