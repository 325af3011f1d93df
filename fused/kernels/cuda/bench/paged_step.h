// Calls of PagedAttention in bfloat16 over blocks of a pool in a mixed order; shared by the programs that time them.
#pragma once

#include "cuda/bench/timing.h"

// PagedStep is a call in which each of batch sequences has past keys in the pool and adds tokens.
class PagedStep {
 public:
  PagedStep(size_t heads, size_t key_heads, size_t width, size_t batch, size_t past, size_t added, size_t block)
      : table_(Mixed(batch * ((past + added + block - 1) / block))),
        cumulative_(Multiples(batch, added)),
        past_(std::vector<int32_t>(batch, static_cast<int32_t>(past))) {
    args.columns = (past + added + block - 1) / block;
    args.blocks = batch * args.columns;
    const size_t tokens = batch * added, pool = args.blocks * block * key_heads * width;
    const auto random = [&](size_t count, uint32_t seed) { return data_[count_++] = Fill(count, 1, seed); };
    args.q = random(tokens * heads * width, 1);
    args.k = random(tokens * key_heads * width, 2);
    args.v = random(tokens * key_heads * width, 3);
    args.key_cache = args.key_cache_out = random(pool, 4);
    args.value_cache = args.value_cache_out = random(pool, 5);
    args.y = data_[count_++] = Allocate(tokens * heads * width * 2);
    args.cumulative = cumulative_.data, args.past = past_.data, args.table = table_.data;
    args.tokens = tokens, args.sequences = batch, args.heads = heads, args.key_heads = key_heads;
    args.width = args.value_width = width, args.block = block;
    args.scale = 1 / sqrtf(static_cast<float>(width));
    args.causal = true;
    args.type = kMojoBFloat16;
    args.scratch = data_[count_++] = Allocate(MojoPagedAttentionScratch(&args));
  }
  ~PagedStep() {
    for (int i = 0; i < count_; ++i) Check(cudaFree(data_[i]), "free");
  }
  PagedStep(const PagedStep&) = delete;
  PagedStep& operator=(const PagedStep&) = delete;

  void Run(cudaStream_t stream) const { Check(MojoCudaPagedAttention(&args, stream), "MojoCudaPagedAttention"); }

  MojoPagedAttentionArgs args;

 private:
  static std::vector<int32_t> Mixed(size_t count) {
    std::vector<int32_t> table(count);
    for (size_t i = 0; i < count; ++i) table[i] = static_cast<int32_t>(i);
    uint32_t seed = 1;
    for (size_t i = count; i > 1; --i) {
      seed = seed * 1664525 + 1013904223;
      std::swap(table[i - 1], table[seed % i]);
    }
    return table;
  }
  static std::vector<int32_t> Multiples(size_t count, size_t of) {
    std::vector<int32_t> all;
    for (size_t i = 0; i <= count; ++i) all.push_back(static_cast<int32_t>(i * of));
    return all;
  }

  const OnDevice<int32_t> table_, cumulative_, past_;
  void* data_[7];
  int count_ = 0;
};
