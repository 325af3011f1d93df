// Attention of many rows, as in prefill. Keys and values are packed into panels first: float32, in the order in which a
// product of matrices reads them. The floor is rows * keys * (width + value_width) fused multiply-adds.
#pragma once

#include "cpu/simd/attention_softmax.h"
#include "cpu/simd/product.h"

namespace mojo {
namespace MOJO_ISA {

// A panel is two vectors wide: keys side by side for each channel, or channels for each key.
constexpr size_t kPair = 2 * kLanes;

// Turned transposes a matrix of kLanes vectors: each round moves one bit between row and lane numbers.
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

// PanelProduct multiplies kRows rows of a, depth numbers each, with a panel. It sets to to the product, or multiplies
// to with the factors and adds the product.
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
  // Rows beyond the tile are zeros, and see the same keys as its last row.
  const size_t rows = Smaller(kRows, t.rows - row), block = key + kAttentionBlock;
  const size_t first = Larger(t.first[row], Larger(key, t.begin));
  const size_t last = Smaller(t.last[row + rows - 1], Smaller(block, t.end));
  if (first >= last) return;
  // The keys of whole panels; keys that a row does not see have no weight.
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

// AddMany adds keys for rows that multiply with panels.
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

// PackKeys packs count keys, at most kLanes, into a panel: for each channel, the keys side by side. scales has as many
// numbers, of codes.
template <class T>
MOJO_INLINE void PackKeys(const T* const* keys, const float* scales, size_t count, size_t width, float* panel) {
  ForEachVector(width, [&](auto lanes, size_t c) MOJO_LAMBDA {
    F32 v[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      v[i] = static_cast<size_t>(i) < count ? Load(lanes, keys[i] + c) : F32{};
      if (kIsCode<T> && static_cast<size_t>(i) < count) v[i] *= scales[i];
    }
    Turned(v);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (c + i < width) Store(panel + (c + i) * kPair, v[i]);
    }
  });
}

// PackBlock packs a block of rows in their order, or of a pool.
template <class T>
void PackBlock(const AttentionPack& a) {
  const T *keys[kAttentionBlock], *values[kAttentionBlock];
  for (size_t j = 0; j < a.count; ++j) {
    const size_t place = a.places == nullptr ? j : a.places[j];
    keys[j] = static_cast<const T*>(a.keys) + place * a.key_step;
    values[j] = static_cast<const T*>(a.values) + place * a.value_step;
  }
  for (size_t j = 0; j < (a.count + kPair - 1) / kPair * kPair; j += kLanes) {
    float* panel = a.key_panel + j / kPair * kPair * a.width + j % kPair;
    const size_t count = j < a.count ? Smaller(a.count - j, kLanes) : 0;
    const size_t first = count > 0 ? j : 0;
    PackKeys<T>(keys + first, kIsCode<T> ? a.key_scales + first : nullptr, count, a.width, panel);
  }
  for (size_t c = 0; c < a.value_width; c += kPair) {
    float* panel = a.value_panel + c * kAttentionBlock;
    const size_t n = Smaller(a.value_width - c, kPair);
    for (size_t j = 0; j < a.count; ++j) {
      const T* value = values[j] + c;
      const float scale = kIsCode<T> ? a.value_scales[j] : 1;
      const auto scaled = [=](F32 v) MOJO_LAMBDA { return kIsCode<T> ? v * scale : v; };
      Store(panel + j * kPair, scaled(n >= kLanes ? Load(value) : Load(Part{n}, value)));
      F32 right{};
      if (n > kLanes) right = scaled(n == kPair ? Load(value + kLanes) : Load(Part{n - kLanes}, value + kLanes));
      Store(panel + j * kPair + kLanes, right);
    }
  }
}

}  // namespace MOJO_ISA
}  // namespace mojo
