// The tensors of attention, for all devices: only C++17, which nvcc compiles too.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace mojo {

// HeadSteps are the distances in a tensor of heads, in elements: from one sequence, head or token to the next.
struct HeadSteps {
  size_t batch = 0, head = 0, row = 0;
};

// StepsOf returns the steps of [batch, heads, length, width] or, if by_token, of [batch, length, heads, width].
inline HeadSteps StepsOf(size_t heads, size_t length, size_t width, bool by_token) {
  return {heads * length * width, by_token ? width : length * width, by_token ? heads * width : width};
}

// CacheLengths are the lengths of the sequences of a cache.
struct CacheLengths {
  size_t batch = 0;
  size_t added = 0;                       // N, the new keys or latents
  size_t past = 0;                        // P, or M with past_lengths
  size_t room = 0;                        // length of the resulting cache
  const int64_t* past_lengths = nullptr;  // may be null
  bool on_device = false;                 // the tensors are on a device: nothing reads past_lengths
  bool one_length = false;                // past_lengths has one number for all

  // Past is the number of cached tokens of a sequence, Length the number with the new ones. Longest is the greatest
  // length, or its lower bound if lengths are not known.
  size_t Past(size_t b) const {
    return past_lengths == nullptr ? past : static_cast<size_t>(past_lengths[one_length ? 0 : b]);
  }
  size_t Length(size_t b) const { return Past(b) + added; }
  size_t Longest() const;
};

// PagedSequence is a sequence whose keys and values are rows of a pool.
struct PagedSequence {
  size_t token = 0;                // its first one in q
  size_t length = 0;               // of its keys, with the new ones
  const size_t* places = nullptr;  // the row of each key, and behind it kAttentionBlock rows to prefetch
};

// PoolScales are the scales [blocks, heads] of pools of 8-bit codes.
struct PoolScales {
  const float *keys = nullptr, *values = nullptr;
  size_t block = 0;  // rows of a block
  bool float8 = false;
};

// AttentionTensors are the tensors of a running Attention, and their sizes. The steps describe their layout: [batch,
// heads, tokens, width] in some order, or as given. Omitted tensors are null.
struct AttentionTensors : CacheLengths {
  size_t heads = 0, key_heads = 0;  // key_heads divides heads
  size_t queries = 0;               // S
  size_t width = 0, value_width = 0;
  // If not null, [batch]: all keys and values are in k and v, by row and head, and there is no cache. The result for a
  // sequence does not depend on the others.
  const PagedSequence* paged = nullptr;
  const PoolScales* scales = nullptr;  // if not null, k and v are codes of a pool
  bool values_in_keys = false;         // values are the first value_width channels of keys, and have no cache
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // queries, and the added keys and values
  HeadSteps q_steps, k_steps, v_steps, y_steps;
  const void *past_key = nullptr, *past_value = nullptr;  // [batch, key_heads, past, width or value_width]
  const int64_t* key_valid = nullptr;                     // [batch, valid_step]; a key beyond valid_step is not seen
  size_t valid_step = 0;                                  // from one sequence to the next
  const float* bias = nullptr;
  size_t bias_steps[4] = {};    // of sequence, head, query and key; 0 where broadcast
  size_t bias_keys = 0;         // the last dimension; if bias_steps[3] is not 0, a key beyond is not seen
  const float* sink = nullptr;  // [heads]
  void* y = nullptr;
  void *present_key = nullptr, *present_value = nullptr;  // [batch, key_heads, room, width or value_width]
};

// LatentTensors are the tensors of a running LatentAttention, and their sizes. Omitted tensors are null.
struct LatentTensors : CacheLengths {
  size_t heads = 0;
  size_t queries = 0;  // S
  size_t nope = 0, rotated = 0, latent = 0, value_width = 0;
  const void* q = nullptr;     // [batch, heads, queries, nope + rotated], by q_steps
  const void* c = nullptr;     // [batch, added, latent]
  const void* k_pe = nullptr;  // [batch, added, rotated]
  const void* w = nullptr;     // [latent, heads * (nope + value_width)], or its transpose
  HeadSteps q_steps, y_steps;
  const void* past_latents = nullptr;  // [batch, past, latent + rotated]
  const int64_t* key_valid = nullptr;  // [batch, valid_step]; a token beyond valid_step is not seen
  size_t valid_step = 0;               // from one sequence to the next
  void* y = nullptr;                   // [batch, heads, queries, value_width], by y_steps
  void* present = nullptr;             // [batch, room, latent + rotated]

  size_t Width() const { return latent + rotated; }  // elements cached per token
};

}  // namespace mojo
