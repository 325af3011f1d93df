// Attention: scores of keys, their softmax block by block, and the sums of values.
//
// A tile has rows of queries that share a head of keys. Its state is, for each row, the greatest score, the sum of the
// powers of e relative to it, and the values weighted with these powers. Keys are added a block at a time. Few rows
// read keys and values in place, each once; many rows multiply panels like matrices. The products of a block are summed
// from zero and their sum is added to the total: one chain of additions over thousands of keys would collect several
// times the rounding errors.
#pragma once

#include "cpu/simd/attention_few.h"
#include "cpu/simd/attention_many.h"

namespace mojo {
namespace MOJO_ISA {

// ScaledQuery writes n numbers times scale, and zeros behind them.
template <class T>
void ScaledQuery(const void* q, float scale, float* to, size_t n, size_t n_padded) {
  for (size_t i = n / kLanes * kLanes; i < n_padded; i += kLanes) Store(to + i, F32{});
  ForEachVector(n, [=](auto lanes, size_t i)
                       MOJO_LAMBDA { Store(lanes, to + i, Load(lanes, static_cast<const T*>(q) + i) * scale); });
}

template <class T>
void AddTile(const AttentionTile& t) {
  if (t.key_panels != nullptr) return AddMany(t);
  AddFew<T>(t);
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

// FinishRow divides the values by the sum of the weights. It rescales slices to the greatest score of all.
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
  if (sum == 0) {  // one visible key adds 1
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
  return OfType(type, [](auto t) { return &kAttentionOf<decltype(t)>; });
}

}  // namespace MOJO_ISA
}  // namespace mojo
