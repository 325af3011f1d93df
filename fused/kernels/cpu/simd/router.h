// The inner loops of TopKRouter.
//
// A row is copied to scratch memory as float32 and padded to whole vectors with scores that lose against all others.
// The choice compares integers in the order of the scores, so that an expert is taken once whatever its score:
// infinities and NaN (the greatest, as in PyTorch) are ordered too.
#pragma once

#include <math.h>

#include "cpu/simd/kernels.h"
#include "cpu/simd/math.h"
#include "cpu/simd/vec.h"
#include "cpu/simd/widen.h"

namespace mojo {
namespace MOJO_ISA {

// Padded is n rounded up to whole vectors.
MOJO_INLINE size_t Padded(size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// InLast is a mask of the lanes in use in the last vector of n numbers.
MOJO_INLINE I32 InLast(size_t n) { return LaneNumbers() < static_cast<int32_t>(n - (Padded(n) - kLanes)); }

// GreatestLane is the greatest lane, LeastLane the least.
MOJO_INLINE int32_t GreatestLane(I32 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_epi32((__m512i)v);
#else
  int32_t lanes[kLanes];
  __builtin_memcpy(lanes, &v, sizeof(v));
  for (int n = kLanes / 2; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) lanes[i] = lanes[i] < lanes[i + n] ? lanes[i + n] : lanes[i];
  }
  return lanes[0];
#endif
}
MOJO_INLINE int32_t LeastLane(I32 v) { return ~GreatestLane(~v); }

// MakeScores makes scores of n logits, in place; n is a number of whole vectors.
inline void MakeScores(Score score, float* v, size_t n) {
  if (score == Score::kSigmoid) {
    for (size_t i = 0; i < n; i += kLanes) Store(v + i, Logistic(Load(v + i)));
    return;
  }
  if (score == Score::kSqrtsoftplus) {  // of a few hundred numbers for each token
    for (size_t i = 0; i < n; ++i) v[i] = sqrtf((v[i] < 0 ? 0 : v[i]) + log1pf(expf(-fabsf(v[i]))));
    return;
  }
  F32 most = Load(v);
  for (size_t i = kLanes; i < n; i += kLanes) most = AtLeast(Load(v + i), most);
  const F32 greatest = Set(Greatest(most));
  F32 sum = {};
  for (size_t i = 0; i < n; i += kLanes) {
    const F32 t = Load(v + i) - greatest;
    const F32 e = Select(t < Set(kLeastExponent), Set(0.0f), Exponential(t, 0));
    Store(v + i, e);
    sum += e;
  }
  const F32 all = Set(Sum(sum));
  for (size_t i = 0; i < n; i += kLanes) Store(v + i, Load(v + i) / all);
}

// Ordered are integers that are ordered as the numbers of v, which may have both zeros.
MOJO_INLINE I32 Ordered(F32 v) {
  const U32 bits = Bits(v + Set(0.0f));
  const U32 key = bits ^ ((U32)((I32)bits >> 31) & 0x7fffffffu);
  return (I32)Select(v == v, key, SetBits(0x7fffffffu));
}

constexpr int32_t kTaken = INT32_MIN;  // less than any key

// TakeGreatest finds the greatest of n keys, the first of equals, and takes it; n is a number of whole
// vectors.
inline size_t TakeGreatest(int32_t* keys, size_t n) {
  I32 best, at = {};
  __builtin_memcpy(&best, keys, sizeof(best));
  for (size_t i = kLanes; i < n; i += kLanes) {
    I32 v;
    __builtin_memcpy(&v, keys + i, sizeof(v));
    const I32 more = v > best;
    best = (I32)Select(more, (U32)v, (U32)best);
    at = (I32)Select(more, SetBits(static_cast<uint32_t>(i)), (U32)at);
  }
  const I32 places = (I32)Select(best == GreatestLane(best), (U32)(at + LaneNumbers()), SetBits(INT32_MAX));
  const size_t place = static_cast<size_t>(LeastLane(places));
  keys[place] = kTaken;
  return place;
}

// FillUp writes fill into the lanes after n numbers.
MOJO_INLINE void FillUp(float* v, size_t n, float fill) {
  float* const last = v + Padded(n) - kLanes;
  Store(last, Select(InLast(n), Load(last), Set(fill)));
}

// Filled widens n numbers and fills up. It stores each vector once: a load that needs two stores waits for both.
template <class T>
void Filled(const void* from, float* to, size_t n, float fill) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(to + i, Load(static_cast<const T*>(from) + i));
  if (i < n) Store(to + i, Select(InLast(n), Load(Part{n - i}, static_cast<const T*>(from) + i), Set(fill)));
}
inline void Filled(ElementType type, const void* from, float* to, size_t n, float fill) {
  return OfType(type, [=](auto t) { return Filled<decltype(t)>(from, to, n, fill); });
}

// ToKeys makes the keys of n numbers, and fills up.
inline void ToKeys(const float* v, int32_t* keys, size_t n) {
  I32 k = {};
  for (size_t i = 0; i < n; i += kLanes) {
    k = Ordered(Load(v + i));
    __builtin_memcpy(keys + i, &k, sizeof(k));
  }
  k = (I32)Select(InLast(n), (U32)k, SetBits(static_cast<uint32_t>(kTaken)));
  __builtin_memcpy(keys + Padded(n) - kLanes, &k, sizeof(k));
}

// FirstLane is the first lane where mask is all ones.
MOJO_INLINE size_t FirstLane(I32 mask) {
#if defined(__AVX512F__)
  return static_cast<size_t>(__builtin_ctz(_mm512_movepi32_mask((__m512i)mask)));
#elif defined(__AVX2__)
  return static_cast<size_t>(__builtin_ctz(static_cast<unsigned>(_mm256_movemask_ps((__m256)mask))));
#else
  return static_cast<size_t>(LeastLane((I32)Select(mask, (U32)LaneNumbers(), SetBits(INT32_MAX))));
#endif
}

// TakeOf returns the top_k greatest keys of n numbers, the first of equals first. A single vector stays in a register.
inline void TakeOf(int32_t* keys, size_t n, size_t top_k, int64_t* ids) {
  if (n > kLanes) {
    for (size_t j = 0; j < top_k; ++j) ids[j] = static_cast<int64_t>(TakeGreatest(keys, Padded(n)));
    return;
  }
  I32 left;
  __builtin_memcpy(&left, keys, sizeof(left));
  for (size_t j = 0; j < top_k; ++j) {
    const size_t place = FirstLane(left == GreatestLane(left));
    left = (I32)Select(LaneNumbers() == static_cast<int32_t>(place), SetBits(static_cast<uint32_t>(kTaken)), (U32)left);
    ids[j] = static_cast<int64_t>(place);
  }
}

// GroupScore is the greatest of n numbers, or the sum of the two greatest.
inline float GroupScore(const float* v, size_t n, bool top2_sum) {
  float first = -__builtin_inff(), second = first;
  for (size_t i = 0; i < n; ++i) {
    const float less = v[i] < first ? v[i] : first;
    first = v[i] < first ? first : v[i];
    second = less < second ? second : less;
  }
  return top2_sum ? first + second : first;
}

// LimitGroups overwrites all scores in choice outside the best groups with excluded.
inline void LimitGroups(const RouterArgs& args, float* choice, float* scores, int32_t* keys) {
  const size_t size = args.experts / args.groups;
  for (size_t g = 0; g < args.groups; ++g) scores[g] = GroupScore(choice + g * size, size, args.top2_sum);
  ToKeys(scores, keys, args.groups);
  for (size_t g = 0; g < args.group_top_k; ++g) TakeGreatest(keys, Padded(args.groups));
  for (size_t g = 0; g < args.groups; ++g) {
    if (keys[g] == kTaken) continue;
    for (size_t i = g * size; i < (g + 1) * size; ++i) choice[i] = args.excluded;
  }
}

// RouteRows chooses for the rows from begin to end - 1.
inline void RouteRows(const RouterArgs& args, size_t begin, size_t end) {
  const size_t n = args.experts, padded = Padded(n);
  float on_stack[kRouterScratch * kRouterExperts];
  float* const scores = args.scratch != nullptr ? args.scratch : on_stack;
  float* const choice = scores + padded;
  float* const bias = choice + padded;
  float* const chosen = bias + padded;
  int32_t* const keys = reinterpret_cast<int32_t*>(chosen + padded);
  const char* logits = static_cast<const char*>(args.logits);
  const size_t row_size = n * (args.logits_type == kFloat32 ? 4 : 2);
  if (args.bias != nullptr) {
    Filled(args.bias_type, args.bias, bias, n, 0);
  }
  for (size_t row = begin; row < end; ++row) {
    float* const w = args.weights + row * args.top_k;
    int64_t* const ids = args.ids + row * args.top_k;
    Filled(args.logits_type, logits + row * row_size, scores, n, -__builtin_inff());
    if (!args.top_k_first) MakeScores(args.score, scores, padded);
    const float* by = scores;
    if (args.bias != nullptr || args.groups > 1) {
      for (size_t i = 0; i < padded; i += kLanes) {
        Store(choice + i, args.bias != nullptr ? Load(scores + i) + Load(bias + i) : Load(scores + i));
      }
      if (args.groups > 1) LimitGroups(args, choice, chosen, keys);
      by = choice;
    }
    ToKeys(by, keys, n);
    TakeOf(keys, n, args.top_k, ids);
    for (size_t j = 0; j < args.top_k; ++j) chosen[j] = scores[ids[j]];
    if (args.top_k_first) {
      FillUp(chosen, args.top_k, -__builtin_inff());
      MakeScores(args.score, chosen, Padded(args.top_k));
    }
    double sum = 0;
    for (size_t j = 0; j < args.top_k; ++j) sum += static_cast<double>(chosen[j]);
    const float divisor = args.renormalize ? static_cast<float>(sum) + args.epsilon : 1;
    for (size_t j = 0; j < args.top_k; ++j) w[j] = chosen[j] / divisor * args.scale;
  }
}

}  // namespace MOJO_ISA
}  // namespace mojo
