// Calls of experts: random choices; shared by the programs that time them.
#pragma once

#include <set>
#include <string>

#include "cuda/bench/timing.h"

// Speed of an H200: bytes a second read from memory, and bf16 operations a second of large products.
constexpr double kBytesPerSecond = 4.61e12, kOperationsPerSecond = 787e12;

// Choices are top_k different experts for each token, with equal weights.
struct Choices {
  Ids ids;
  Numbers weights;
  size_t hit;  // experts that a token chose

  Choices(size_t tokens, size_t top_k, size_t experts)
      : ids(tokens * top_k), weights(kMojoFloat32, tokens * top_k), hit(0) {
    Random random(tokens);
    std::set<int64_t> all;
    for (size_t i = 0; i < tokens; ++i) {
      std::set<int64_t> mine;
      while (mine.size() < top_k) mine.insert(static_cast<int64_t>(random.Below(experts)));
      std::copy(mine.begin(), mine.end(), ids.host.begin() + static_cast<ptrdiff_t>(i * top_k));
      all.insert(mine.begin(), mine.end());
    }
    hit = all.size();
    for (size_t i = 0; i < weights.count(); ++i) weights.Set(i, 1.0f / static_cast<float>(top_k));
    ids.ToDevice();
    weights.ToDevice();
  }
};
