// The tensors of LinearAttention, for all devices: only C++17, which nvcc compiles too.
#pragma once

#include <stddef.h>

namespace mojo {

// LinearAttentionTensors are the tensors of a running node, and their sizes. Each is dense.
struct LinearAttentionTensors {
  const void* q = nullptr;       // [batch, tokens, q_heads, key]
  const void* k = nullptr;       // [batch, tokens, k_heads, key]
  const void* v = nullptr;       // [batch, tokens, heads, value]
  const float* past = nullptr;   // [batch, heads, key, value]; null: zeros
  const float* decay = nullptr;  // [batch, tokens, heads, channels]; may be null
  const float* beta = nullptr;   // [batch, tokens, beta_heads]; may be null
  void* y = nullptr;             // [batch, tokens, y_heads, value]
  float* present = nullptr;      // as past, and may be past; null: not read
  size_t batch = 0, tokens = 0, key = 0, value = 0;
  size_t q_heads = 0, k_heads = 0, heads = 0, y_heads = 0;
  size_t beta_heads = 0;  // of beta: heads or 1
  size_t channels = 0;    // of decay: 1 or key
};

}  // namespace mojo
