// Attention: scores of keys, their softmax block by block, and the sums of values.
//
// A tile has rows of queries that share a head of keys. What it has seen so far is, for each row, the greatest score,
// the sum of the powers of e below it, and the values weighted with those. A block of keys is added to that at a time.
// Few rows read keys and values as they lie, each once; for many there are panels, which are multiplied like matrices.
// The products of a block are summed from zero and their sum is added to the total: one chain of additions over
// thousands of keys would collect several times the rounding errors.
#ifndef MOJO_KERNELS_CPU_SIMD_ATTENTION_H_
#define MOJO_KERNELS_CPU_SIMD_ATTENTION_H_

#include "cpu/simd/kernels.h"
#include "cpu/simd/math.h"
#include "cpu/simd/pairs.h"
#include "cpu/simd/product.h"
#include "cpu/simd/vec.h"
#include "cpu/simd/widen.h"

namespace mojo {
namespace MOJO_ISA {

// The sums of a product must fit into the registers, with what they are made of. Where these are few, the weights of a
// key are kept there, and its values come one vector after the other, of a strip of keys at a time: the strip is in the
// nearest cache when the next channels are read, which a block of keys is not.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kAttentionSums = 24;
constexpr bool kManyRegisters = true;
#else
constexpr int kAttentionSums = 12;
constexpr bool kManyRegisters = false;
#endif
template <class T>
constexpr size_t kValueStrip = kManyRegisters ? kAttentionBlock : 16 * sizeof(float) / sizeof(T);

// A panel is two vectors wide: keys side by side for each channel, or channels for each key.
constexpr size_t kPair = 2 * kLanes;
constexpr float kNoScore = -__builtin_inff();

// The first rows that read keys and values ask for those that lie so many bytes further on: into the second level of
// the cache as early as memory takes to answer while others are worked off, and into the first one just before they are
// read. That one alone has too few requests under way to keep up with memory.
constexpr size_t kFarAhead = 12 << 10;
constexpr size_t kNearAhead = 2 << 10;
constexpr size_t kCacheLine = 64;

inline size_t Smaller(size_t a, size_t b) { return a < b ? a : b; }
inline size_t Larger(size_t a, size_t b) { return a > b ? a : b; }

// InRegister keeps the compiler from reading a number again each time that it is used.
MOJO_INLINE F32 InRegister(F32 v) {
#if defined(MOJO_EMULATE_AVX512)
  // There is no register as wide.
#elif defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
  return v;
}

// QuadSums adds the lanes of four vectors within each four lanes: of these, the first is a's, and so on.
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

// Turned transposes a matrix of kLanes vectors: their element numbers, of row and lane, turn by one bit at a time.
MOJO_INLINE void Turned(F32* v) {
#pragma GCC unroll 4
  for (int bit = 1; bit < kLanes; bit *= 2) {
    F32 turned[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      turned[i] = Evens(v[2 * i], v[2 * i + 1]);
      turned[i + kLanes / 2] = Odds(v[2 * i], v[2 * i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = turned[i];
  }
}

// TanhOf is tanh(x) to about 2 ulp: a polynomial where the powers of e would cancel.
MOJO_INLINE F32 TanhOf(F32 x) {
  const F32 a = FromBits(Bits(x) & 0x7fffffffu), z = x * x;
  F32 q = Set(-0x1.722ae0p-8f);
  q = Fma(q, z, Set(0x1.5157f4p-6f));
  q = Fma(q, z, Set(-0x1.b81dc0p-5f));
  q = Fma(q, z, Set(0x1.110646p-3f));
  q = Fma(q, z, Set(-0x1.55552ep-2f));
  const F32 near = Fma(q * z, a, a);
  const F32 e = PowerOfE(a * -2);
  const F32 far = (1 - e) / (1 + e);
  const F32 magnitude = Select(a < Set(0.625f), near, far);
  return FromBits(Bits(magnitude) | (Bits(x) & 0x80000000u));
}

// ScaledQuery writes n numbers times scale, and zeros behind them.
template <class T>
void ScaledQuery(const void* q, float scale, float* to, size_t n, size_t n_padded) {
  for (size_t i = n / kLanes * kLanes; i < n_padded; i += kLanes) Store(to + i, F32{});
  ForEachVector(n, [=](auto lanes, size_t i)
                       MOJO_LAMBDA { Store(lanes, to + i, Load(lanes, static_cast<const T*>(q) + i) * scale); });
}

// Between is where j, the first of as many keys as there are lanes, up to the last of them, are at least first and less
// than last.
MOJO_INLINE I32 Between(size_t j, size_t first, size_t last) {
  const size_t from = first > j ? Smaller(first - j, kLanes) : 0, to = last > j ? Smaller(last - j, kLanes) : 0;
  const I32 lane = LaneNumbers();
  return (lane >= static_cast<int32_t>(from)) & (lane < static_cast<int32_t>(to));
}

// Adjust caps the scores of a row, adds its bias, and makes minus infinity of those of keys but the ones from first to
// last - 1, and of those that are not valid. Scores begin with key number key; count is a number of whole vectors.
inline void Adjust(const AttentionTile& t, size_t row, size_t key, size_t count, size_t first, size_t last,
                   float* scores) {
  const float* bias = t.bias == nullptr ? nullptr : t.bias[row];
  for (size_t i = 0; i < count; i += kLanes) {
    const size_t j = key + i;
    F32 s = Load(scores + i);
    if (t.softcap > 0) s = TanhOf(s * (1 / t.softcap)) * t.softcap;
    if (bias != nullptr && j < last) {
      const Part part{Smaller(last - j, kLanes)};
      s += t.bias_step == 0 ? Set(bias[0]) : part.count == kLanes ? Load(bias + j) : Load(part, bias + j);
    }
    if (t.valid != nullptr) s = Select(Load(t.valid + j) == 0, s, Set(kNoScore));
    if (j < first || j + kLanes > last) s = Select(Between(j, first, last), s, Set(kNoScore));
    Store(scores + i, s);
  }
}

// Reduced has in each lane what combine makes of all lanes of one of kLanes vectors.
template <class Combine>
MOJO_INLINE F32 Reduced(F32* v, Combine combine) {
#pragma GCC unroll 4
  for (int n = kLanes / 2; n > 0; n /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) v[i] = combine(Evens(v[2 * i], v[2 * i + 1]), Odds(v[2 * i], v[2 * i + 1]));
  }
  return v[0];
}

// Weigh makes powers of e of the scores of rows, relative to the greatest of each, and tells by which factors those of
// former blocks have become less. As many rows as there are lanes are taken together, so that none waits until the
// lanes of another one are added up.
inline void Weigh(const AttentionTile& t, size_t row, size_t rows, size_t key, size_t count, float* scores) {
  for (; rows > kLanes; row += kLanes, rows -= kLanes, scores += kLanes * kAttentionBlock) {
    Weigh(t, row, kLanes, key, count, scores);
  }
  F32 each[kLanes];
  for (F32& v : each) v = Set(kNoScore);
  for (size_t r = 0; r < rows; ++r) {
    float* of = scores + r * kAttentionBlock;
    const size_t first = t.first[row + r], last = Smaller(t.last[row + r], t.end);
    if (t.softcap > 0 || t.bias != nullptr || t.valid != nullptr || first > key || last < key + count) {
      Adjust(t, row + r, key, count, first, last, of);
    }
    F32 greatest = Load(of);
    for (size_t i = kLanes; i < count; i += kLanes) greatest = AtLeast(Load(of + i), greatest);
    each[r] = greatest;
  }
  const Part part{rows};
  const F32 before = Load(part, t.most + row);
  const F32 most = AtLeast(Reduced(each, [](F32 a, F32 b) MOJO_LAMBDA { return AtLeast(a, b); }), before);
  const F32 base = Select(most == Set(kNoScore), F32{}, most);
  const F32 factor = Select(most == before, Set(1), PowerOfE(before - base));
  float bases[kLanes];
  Store(bases, base);
  for (F32& v : each) v = F32{};
  for (size_t r = 0; r < rows; ++r) {
    float* of = scores + r * kAttentionBlock;
    const F32 less = Set(bases[r]);
    F32 sum{};
    for (size_t i = 0; i < count; i += kLanes) {
      const F32 p = PowerOfE(Load(of + i) - less);
      Store(of + i, p);
      sum += p;
    }
    each[r] = sum;
  }
  const F32 sums = Reduced(each, [](F32 a, F32 b) MOJO_LAMBDA { return a + b; });
  Store(part, t.most + row, most);
  Store(part, t.sum + row, Load(part, t.sum + row) * factor + sums);
  Store(part, t.factors + row, factor);
}

// Ask asks for what will be read when as many bytes as kVectors vectors at row are.
template <int kVectors = 1, class T>
MOJO_INLINE void Ask(const T* row) {
  const char* now = reinterpret_cast<const char*>(row);
#pragma GCC unroll 8
  for (size_t i = 0; i < kVectors * kLanes * sizeof(T); i += kCacheLine) {
    __builtin_prefetch(now + kFarAhead + i, 0, 2);
    __builtin_prefetch(now + kNearAhead + i);
  }
}

// ScoreRows writes the scores of kLanes keys, of which there are count, for kRows rows from row on. Four keys at a time
// are multiplied with all rows. asks says that later keys are asked for.
template <int kRows, bool kAll, class T>
void ScoreRows(const AttentionTile& t, size_t row, const T* keys, size_t step, size_t count, bool asks, float* scores) {
  constexpr int kQuads = kLanes / 4;
  constexpr size_t kLine = kCacheLine / sizeof(T);
  const float* q = t.q + row * t.q_step;
  const size_t q_step = t.q_step, width = t.width;
  F32 quads[kRows][kQuads];
  for (int quad = 0; quad < kQuads; ++quad) {
    F32 sum[kRows][4] = {};
    const T* from[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const size_t key = static_cast<size_t>(quad * 4 + k);
      from[k] = keys + (kAll ? key : Smaller(key, count - 1)) * step;
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
      for (int k = 0; asks && k < 4; ++k) Ask<kLine / kLanes>(from[k] + c);
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
template <class T>
void ScoreAllRows(const AttentionTile& t, const T* keys, size_t step, size_t count, bool asks, float* scores) {
  size_t row = 0;
  const auto rows = [&](auto some, auto all) MOJO_LAMBDA {
    constexpr int kRows = decltype(some)::value;
    for (; row + kRows <= t.rows; row += kRows) {
      ScoreRows<kRows, decltype(all)::value == 1>(t, row, keys, step, count, asks && row == 0, scores);
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

// ScoreKeys is ScoreAllRows of any type: where several rows read keys of 16 bits, these are widened once for all.
template <class T>
void ScoreKeys(const AttentionTile& t, size_t key, size_t count, float* scores) {
  const T* keys = static_cast<const T*>(t.keys) + key * t.key_step;
  if (sizeof(T) != sizeof(float) && t.rows > 4) {
    for (size_t i = 0; i < count; ++i) {
      const T* from = keys + i * t.key_step;
      for (size_t c = 0; c < t.width; c += kCacheLine / sizeof(T)) Ask(from + c);
      Widened<T>(from, t.wide + i * t.q_step, t.width);
    }
    return ScoreAllRows(t, t.wide, t.q_step, count, false, scores);
  }
  ScoreAllRows(t, keys, t.key_step, count, true, scores);
}

// Strip is some keys of a block. The first one starts the sums of the block, the last one adds them to the total.
struct Strip {
  size_t count;
  bool first, last;
};

// ValueTile sums kVectors vectors of channels, from channel c on and the last one part of one, of the values of a strip
// times their weights.
template <int kRows, int kVectors, class Lanes, class T>
MOJO_INLINE void ValueTile(Lanes lanes, const AttentionTile& t, size_t row, const float* weights, const T* values,
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
    const T* from = values + c + j * t.value_step;
    if (row == 0) Ask<kVectors>(from);
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
template <int kRows, class T>
void ValueRows(const AttentionTile& t, size_t row, const float* weights, const T* values, const Strip& strip) {
  constexpr int kFit = kAttentionSums / kRows;
  constexpr int kVectors = kFit >= 8 ? 8 : kFit >= 4 ? 4 : 2, kFewer = kVectors < 4 ? kVectors : 4;
  size_t c = 0;
  const auto whole = [&](auto vectors) MOJO_LAMBDA {
    constexpr int kCount = decltype(vectors)::value;
    for (; c + kCount * kLanes <= t.value_width; c += kCount * kLanes) {
      ValueTile<kRows, kCount>(Whole{}, t, row, weights, values, strip, c);
    }
  };
  if constexpr (kVectors == 8) whole(Count<8>{});
  whole(Count<kFewer>{});
  whole(Count<1>{});
  if (c < t.value_width) ValueTile<kRows, 1>(Part{t.value_width - c}, t, row, weights, values, strip, c);
}

// AddValues adds the values of a strip of keys, from key on, with the weights of all rows.
template <class T>
void AddValues(const AttentionTile& t, size_t key, const Strip& strip, const float* weights) {
  const T* values = static_cast<const T*>(t.values) + key * t.value_step;
  size_t row = 0;
  const auto rows = [&](auto some) MOJO_LAMBDA {
    constexpr int kRows = decltype(some)::value;
    for (; row + kRows <= t.rows; row += kRows) {
      ValueRows<kRows, T>(t, row, weights + row * kAttentionBlock, values, strip);
    }
  };
  rows(Count<4>{});
  rows(Count<3>{});
  rows(Count<2>{});
  rows(Count<1>{});
}

// AddFew is for few rows.
template <class T>
void AddFew(const AttentionTile& t) {
  size_t first = t.end, last = t.begin;
  for (size_t row = 0; row < t.rows; ++row) {
    first = Smaller(first, Larger(t.first[row], t.begin));
    last = Larger(last, Smaller(t.last[row], t.end));
  }
  for (size_t key = first; key < last; key += kAttentionBlock) {
    const size_t count = Smaller(last - key, kAttentionBlock);
    for (size_t j = 0; j < count; j += kLanes) {
      ScoreKeys<T>(t, key + j, Smaller(count - j, kLanes), t.scores + j);
    }
    Weigh(t, 0, t.rows, key, (count + kLanes - 1) / kLanes * kLanes, t.scores);
    for (size_t j = 0; j < count; j += kValueStrip<T>) {
      const Strip strip{Smaller(count - j, kValueStrip<T>), j == 0, j + kValueStrip<T> >= count};
      AddValues<T>(t, key + j, strip, t.scores + j);
    }
  }
}

// PanelProduct multiplies kRows rows of a, depth numbers each, with a panel: to becomes the product, or it times the
// factors and more by the product.
template <int kRows, bool kAdd>
void PanelProduct(const float* a, size_t a_step, const float* panel, size_t depth, const float* factors, float* to,
                  size_t to_step) {
  F32 sum[kRows][2] = {};
  for (size_t k = 0; k < depth; ++k) {
    const F32 left = Load(panel + k * kPair), right = Load(panel + k * kPair + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const F32 number = Set(a[r * a_step + k]);
      sum[r][0] = Fma(number, left, sum[r][0]);
      sum[r][1] = Fma(number, right, sum[r][1]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kAdd) {
      sum[r][0] = Fma(Load(to + r * to_step), Set(factors[r]), sum[r][0]);
      sum[r][1] = Fma(Load(to + r * to_step + kLanes), Set(factors[r]), sum[r][1]);
    }
    Store(to + r * to_step, sum[r][0]);
    Store(to + r * to_step + kLanes, sum[r][1]);
  }
}

// AddRows adds a block of keys, from key on, to kRows rows from row on.
template <int kRows>
void AddRows(const AttentionTile& t, size_t row, size_t key) {
  // Rows beyond those of the tile are zeros, and see what the last one does.
  const size_t rows = Smaller(kRows, t.rows - row), block = key + kAttentionBlock;
  const size_t first = Larger(t.first[row], Larger(key, t.begin));
  const size_t last = Smaller(t.last[row + rows - 1], Smaller(block, t.end));
  if (first >= last) return;
  // The keys of whole panels; those that a row does not see have no weight.
  const size_t from = (first - key) / kPair * kPair, to = (last - key + kPair - 1) / kPair * kPair;
  const size_t columns = (t.value_width + kPair - 1) / kPair * kPair;
  float* scores = t.scores + row * kAttentionBlock;
  const float* keys = t.key_panels + (key - t.first_panel) * t.width;
  for (size_t j = from; j < to; j += kPair) {
    PanelProduct<kRows, false>(t.q + row * t.q_step, t.q_step, keys + j * t.width, t.width, nullptr, scores + j,
                               kAttentionBlock);
  }
  Weigh(t, row, rows, key + from, to - from, scores + from);
  for (size_t r = rows; r < kRows; ++r) t.factors[row + r] = 0;
  const float* values = t.value_panels + (key - t.first_panel) * columns;
  for (size_t c = 0; c < columns; c += kPair) {
    PanelProduct<kRows, true>(scores + from, kAttentionBlock, values + c * kAttentionBlock + from * kPair,
                              last - key - from, t.factors + row, t.total + row * t.total_step + c, t.total_step);
  }
}

// AddMany is for rows that multiply with panels.
inline void AddMany(const AttentionTile& t) {
  const size_t first = Larger(t.first[0], t.begin), last = Smaller(t.last[t.rows - 1], t.end);
  constexpr int kMost = kAttentionSums / 2;
  for (size_t key = first / kAttentionBlock * kAttentionBlock; key < last; key += kAttentionBlock) {
    size_t row = 0;
    for (; row + kMost <= t.rows; row += kMost) AddRows<kMost>(t, row, key);
    for (; row + kMost / 3 < t.rows; row += kMost * 2 / 3) AddRows<kMost * 2 / 3>(t, row, key);
    if (row < t.rows) AddRows<kMost / 3>(t, row, key);
  }
}

template <class T>
void AddTile(const AttentionTile& t) {
  if (t.key_panels != nullptr) return AddMany(t);
  AddFew<T>(t);
}

// PackKeys puts kLanes keys, of which there are count, into a panel: for each channel, the keys side by side.
template <class T>
MOJO_INLINE void PackKeys(const T* keys, size_t step, size_t count, size_t width, float* panel) {
  ForEachVector(width, [&](auto lanes, size_t c) MOJO_LAMBDA {
    F32 v[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      v[i] = static_cast<size_t>(i) < count ? Load(lanes, keys + i * step + c) : F32{};
    }
    Turned(v);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (c + i < width) Store(panel + (c + i) * kPair, v[i]);
    }
  });
}

template <class T>
void PackBlock(const AttentionPack& a) {
  const T* keys = static_cast<const T*>(a.keys);
  const T* values = static_cast<const T*>(a.values);
  for (size_t j = 0; j < (a.count + kPair - 1) / kPair * kPair; j += kLanes) {
    float* panel = a.key_panel + j / kPair * kPair * a.width + j % kPair;
    const size_t count = j < a.count ? Smaller(a.count - j, kLanes) : 0;
    PackKeys<T>(keys + (count > 0 ? j : 0) * a.key_step, a.key_step, count, a.width, panel);
  }
  for (size_t c = 0; c < a.value_width; c += kPair) {
    float* panel = a.value_panel + c * kAttentionBlock;
    const size_t n = Smaller(a.value_width - c, kPair);
    for (size_t j = 0; j < a.count; ++j) {
      const T* value = values + j * a.value_step + c;
      Store(panel + j * kPair, n >= kLanes ? Load(value) : Load(Part{n}, value));
      F32 right{};
      if (n > kLanes) right = n == kPair ? Load(value + kLanes) : Load(Part{n - kLanes}, value + kLanes);
      Store(panel + j * kPair + kLanes, right);
    }
  }
}

template <class T>
void MeanOfValues(const void* values, size_t step, size_t count, size_t width, float* to) {
  const float share = 1 / static_cast<float>(count);
  ForEachVector(width, [=](auto lanes, size_t c) MOJO_LAMBDA {
    F32 sum{};
    for (size_t first = 0; first < count; first += kAttentionBlock) {
      const size_t end = Smaller(count, first + kAttentionBlock);
      F32 block{};
      for (size_t j = first; j < end; ++j) block += Load(lanes, static_cast<const T*>(values) + j * step + c);
      sum += block;
    }
    Store(lanes, to + c, count == 0 ? F32{} : sum * share);
  });
}

// FinishRow divides the values by the sum of the weights. Slices are brought to the greatest score of all.
template <class T>
void FinishRow(const AttentionRow& a) {
  T* y = static_cast<T*>(a.y);
  float most = kNoScore, sum = 0;
  for (size_t i = 0; i < a.slices; ++i) {
    const float here = a.most[i * a.state_step];
    most = here > most ? here : most;
  }
  const F32 base = Set(most == kNoScore ? 0 : most);
  const auto factor = [&](size_t i) MOJO_LAMBDA { return PowerOfE(a.most[i * a.state_step] - base); };
  for (size_t i = 0; i < a.slices; ++i) sum += a.sum[i * a.state_step] * factor(i)[0];
  if (sum == 0) {  // one key that is seen gives 1
    ForEachVector(a.width, [&](auto lanes, size_t c) MOJO_LAMBDA {
      Store(lanes, y + c, a.empty == nullptr ? F32{} : Load(lanes, a.empty + c));
    });
    return;
  }
  ForEachVector(a.width, [&](auto lanes, size_t c) MOJO_LAMBDA {
    F32 v{};
    for (size_t i = 0; i < a.slices; ++i) v += Load(lanes, a.total + i * a.total_step + c) * factor(i);
    Store(lanes, y + c, v / sum);
  });
}

template <class T>
constexpr AttentionFns kAttentionOf = {ScaledQuery<T>, AddTile<T>, PackBlock<T>, MeanOfValues<T>, FinishRow<T>};

inline const AttentionFns* PickAttention(ElementType type) {
  switch (type) {
    case kFloat32: return &kAttentionOf<float>;
    case kFloat16: return &kAttentionOf<Half>;
    case kBFloat16: return &kAttentionOf<BFloat>;
  }
  return nullptr;
}

}  // namespace MOJO_ISA
}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SIMD_ATTENTION_H_
