// Shared parts of the Attention kernels.
//
// A pair is a sequence and one of its key heads. Its rows are the queries of the group of heads that read those keys:
// row query * group + member. Scores are exponents of two: the definition's scores times log2(e).
#pragma once

#include "cuda/common.cuh"

namespace mojo {

// The implementations of Attention; MojoCudaAttention chooses. AppendKeys writes present_key and present_value, if they
// are outputs, before the others run, which may read them or past and new keys.
cudaError_t AppendKeys(const MojoAttentionArgs& a, cudaStream_t stream);
bool AttentionSplitTakes(const MojoAttentionArgs& a);
size_t AttentionSplitScratch(const MojoAttentionArgs& a);
cudaError_t AttentionSplit(const MojoAttentionArgs& a, cudaStream_t stream);
bool AttentionWgmmaTakes(const MojoAttentionArgs& a);
size_t AttentionWgmmaScratch(const MojoAttentionArgs& a);
cudaError_t AttentionWgmma(const MojoAttentionArgs& a, cudaStream_t stream);
bool AttentionMmaTakes(const MojoAttentionArgs& a);
cudaError_t AttentionMma(const MojoAttentionArgs& a, cudaStream_t stream);
cudaError_t AttentionAny(const MojoAttentionArgs& a, cudaStream_t stream);
bool AttentionLatentTakes(const MojoAttentionArgs& a);
size_t AttentionLatentScratch(const MojoAttentionArgs& a);
cudaError_t AttentionLatent(const MojoAttentionArgs& a, cudaStream_t stream);

// NextTag returns a new 48-bit number for each launch.
unsigned long long NextTag();

inline size_t PairsOf(const MojoAttentionArgs& a) { return a.batch * a.key_heads; }
inline size_t RowsOf(const MojoAttentionArgs& a) { return a.queries * (a.heads / a.key_heads); }

// Pieces reports whether all rows can be read and written in pieces of 16 bytes.
inline bool Pieces(const MojoAttentionArgs& a) {
  const size_t bytes = TypeSize(a.type);
  bool all = a.width * bytes % 16 == 0 && a.value_width * bytes % 16 == 0 &&
             AllAligned(16, a.q, a.k, a.v, a.past_key, a.past_value, a.present_key, a.present_value, a.y);
  for (const HeadSteps* s : {&a.q_steps, &a.k_steps, &a.v_steps, &a.y_steps}) {
    all = all && s->batch * bytes % 16 == 0 && s->head * bytes % 16 == 0 && s->row * bytes % 16 == 0;
  }
  return all;
}

// GroupMax is the greatest v of an aligned group of size lanes, as GroupSum is the sum. A NaN is passed over.
__device__ __forceinline__ float GroupMax(float v, int size) {
  for (int step = size / 2; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
  return v;
}

constexpr float kLog2E = 1.44269504f;

// PowerOfTwo is 2^x, or 0 if that is subnormal.
__device__ __forceinline__ float PowerOfTwo(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Pair is the pair that a block works on.
struct Pair {
  int number, batch, head, group;
  int past, length;  // keys before k, and with k

  __device__ __forceinline__ Pair(const MojoAttentionArgs& a, int pair)
      : number(pair),
        batch(pair / static_cast<int>(a.key_heads)),
        head(pair - batch * static_cast<int>(a.key_heads)),
        group(static_cast<int>(a.heads) / static_cast<int>(a.key_heads)) {
    SetPast(a, AskPast(a));
  }
  // A pair whose group is known, but not its length.
  __device__ __forceinline__ Pair(const MojoAttentionArgs& a, int in_batch, int of_head, int in_group)
      : number(in_batch * static_cast<int>(a.key_heads) + of_head), batch(in_batch), head(of_head), group(in_group) {}

  // AskPast reads how many keys come before k; SetPast stores the number.
  __device__ __forceinline__ int64_t AskPast(const MojoAttentionArgs& a) const {
    return a.past_lengths == nullptr ? static_cast<int64_t>(a.past)
                                     : __ldg(a.past_lengths + (a.one_length ? 0 : batch));
  }
  __device__ __forceinline__ void SetPast(const MojoAttentionArgs& a, int64_t n) {
    const int64_t most = a.past_lengths == nullptr ? a.past : a.past - a.added;
    past = static_cast<int>(n < 0 ? 0 : n > most ? most : n);
    length = past + static_cast<int>(a.added);
  }

  // HeadOf is the head of a row, HeadOfMember of a member of the group.
  __device__ __forceinline__ int HeadOf(const MojoAttentionArgs& a, int row) const {
    return HeadOfMember(a, row % group);
  }
  __device__ __forceinline__ int HeadOfMember(const MojoAttentionArgs& a, int member) const {
    return a.cyclic ? member * static_cast<int>(a.key_heads) + head : head * group + member;
  }
  // At is the offset of a row in q or y.
  __device__ __forceinline__ size_t At(const MojoAttentionArgs& a, const HeadSteps& steps, int row) const {
    return batch * steps.batch + HeadOf(a, row) * steps.head + row / group * steps.row;
  }
};

// Keys are the keys of a pair, or its values, past and new ones.
template <class T>
struct Keys {
  const T *past_rows, *added_rows;
  T* present_rows;  // null if no output
  size_t width, step;
  int past;

  __device__ __forceinline__ const T* Row(int j) const {
    return j < past ? past_rows + j * width : added_rows + (j - past) * step;
  }
  __device__ __forceinline__ T* Present(int j) const { return present_rows + j * width; }
};

template <class T>
__device__ __forceinline__ Keys<T> MakeKeys(const MojoAttentionArgs& a, const Pair& p, const void* added,
                                            const HeadSteps& steps, const void* past, void* present, size_t width) {
  Keys<T> keys;
  keys.past_rows = static_cast<const T*>(past) + p.number * a.past * width;
  keys.added_rows = static_cast<const T*>(added) + p.batch * steps.batch + p.head * steps.head;
  keys.present_rows = present == nullptr ? nullptr : static_cast<T*>(present) + p.number * a.room * width;
  keys.width = width;
  keys.step = steps.row;
  keys.past = p.past;
  return keys;
}
template <class T>
__device__ __forceinline__ Keys<T> KeysOf(const MojoAttentionArgs& a, const Pair& p) {
  return MakeKeys<T>(a, p, a.k, a.k_steps, a.past_key, a.present_key, a.width);
}
template <class T>
__device__ __forceinline__ Keys<T> ValuesOf(const MojoAttentionArgs& a, const Pair& p) {
  if (a.values_in_keys) return KeysOf<T>(a, p);
  return MakeKeys<T>(a, p, a.v, a.v_steps, a.past_value, a.present_value, a.value_width);
}

// Span is a range of keys.
struct Span {
  int begin, end;

  __device__ __forceinline__ bool Has(int j) const { return j >= begin && j < end; }
};

// Seen are the keys that a query may see by its position.
__device__ __forceinline__ Span Seen(const MojoAttentionArgs& a, const Pair& p, int query) {
  const int behind = query + p.length - static_cast<int>(a.queries) + 1, window = static_cast<int>(a.window);
  Span seen{0, p.length};
  if (a.causal) seen.end = max(0, min(p.length, behind));
  if (window > 0 && behind > window) seen.begin = min(p.length, behind - window);
  return seen;
}

// Valid reports whether a key below the length is not padding.
__device__ __forceinline__ bool Valid(const MojoAttentionArgs& a, const Pair& p, int j) {
  return a.key_valid == nullptr || (j < a.valid_step && __ldg(a.key_valid + p.batch * a.valid_step + j) != 0);
}

// BiasOf points to the bias row of a head's query.
__device__ __forceinline__ const float* BiasOf(const MojoAttentionArgs& a, const Pair& p, int head, int query) {
  return a.bias + p.batch * a.bias_steps[0] + head * a.bias_steps[1] + query * a.bias_steps[2];
}
__device__ __forceinline__ const float* BiasOf(const MojoAttentionArgs& a, const Pair& p, int row) {
  return BiasOf(a, p, p.HeadOf(a, row), row / p.group);
}
__device__ __forceinline__ float BiasAt(const MojoAttentionArgs& a, const float* bias, int j) {
  return a.bias_steps[3] != 0 && j >= a.bias_keys ? -INFINITY : __ldg(bias + j * a.bias_steps[3]);
}

// Capped is softcap * tanh(s / softcap). For 16 bit types it is off by a few units in the last place of the cap.
template <class T>
__device__ __forceinline__ float Capped(float s, float softcap) {
  if constexpr (sizeof(T) == 4) {
    return softcap * tanhf(s / softcap);
  } else {
    const float e = PowerOfTwo(s * __fdividef(2 * kLog2E, softcap));
    return softcap - __fdividef(2 * softcap, 1 + e);
  }
}

// Score makes a score from the product of a query and a key, and the bias.
template <class T>
__device__ __forceinline__ float Score(const MojoAttentionArgs& a, float product, float bias) {
  if (a.softcap == 0 && a.bias == nullptr) return product * (a.scale * kLog2E);
  float s = product * a.scale;
  if (a.softcap > 0) s = Capped<T>(s, a.softcap);
  return (s + bias) * kLog2E;
}

// Finite is the exponent that weights are relative to if most is the greatest score.
__device__ __forceinline__ float Finite(float most) { return most == -INFINITY ? 0 : most; }

// SinkScore is the sink of a head as an exponent of two, minus infinity without one. It is finite if the sink is, so
// that a difference of sinks is never infinity minus infinity, and a sink far below 0 still counts for a query that
// sees no key: times log2(e), sinks of great magnitude would overflow.
__device__ __forceinline__ float SinkScore(const float* sinks, int head) {
  constexpr float kMost = 3.40282347e38f;
  if (sinks == nullptr) return -INFINITY;
  const float sink = __ldg(sinks + head), score = sink * kLog2E;
  return fabsf(sink) <= kMost ? fminf(fmaxf(score, -kMost), kMost) : score;
}

// AddSink counts the sink of a head.
__device__ __forceinline__ void AddSink(const MojoAttentionArgs& a, int head, float* most, float* sum) {
  const float sink = SinkScore(a.sink, head);
  if (sink == -INFINITY) return;
  *most = sink;
  *sum = 1;
}

}  // namespace mojo
