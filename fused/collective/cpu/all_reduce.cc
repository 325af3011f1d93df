#include "collective/cpu/all_reduce.h"

#include <string.h>

#include <algorithm>
#include <vector>

namespace mojo {
namespace {

// Tensors up to so many bytes go whole to every rank: one message instead of two.
constexpr size_t kWhole = size_t{64} << 10;

// Whole is AllReduce by one exchange of whole tensors.
OrtStatus* Whole(const Api& api, OrtKernelContext* context, const Member& member, ElementType type, const void* x,
                 void* y, size_t count) {
  const size_t bytes = count * SizeOf(type), ranks = static_cast<size_t>(member.ranks);
  Turn turn(member);
  char* const all = turn.Staging(ranks * bytes);
  if (all == nullptr) return OutOfMemory(api);
  if (OrtStatus* s = turn.Gather(api, x, all, bytes)) return s;
  std::vector<const char*> rows;
  for (size_t r = 0; r < ranks; ++r) rows.push_back(all + r * bytes);
  return SumOfRanks(api, context, type, rows.data(), ranks, y, count);
}

// InPieces is AllReduce by two exchanges: each rank sums a piece, and sends it to the others.
OrtStatus* InPieces(const Api& api, OrtKernelContext* context, const Member& member, ElementType type, const void* x,
                    void* y, size_t count) {
  const size_t size = SizeOf(type), bytes = count * size;
  const auto ranks = static_cast<size_t>(member.ranks), self = static_cast<size_t>(member.rank);
  const size_t each = (count / ranks + 64) / 64 * 64;  // numbers of a piece, whole cache lines
  const auto begin = [&](size_t r) { return std::min(count, r * each) * size; };
  const auto length = [&](size_t r) { return begin(r + 1) - begin(r); };
  Turn turn(member);
  char* const staging = turn.Staging(ranks * length(self) + bytes);
  if (staging == nullptr) return OutOfMemory(api);
  char* const sums = staging + ranks * length(self);
  const char* const from = static_cast<const char*>(x);
  std::vector<Part> send(ranks);
  std::vector<Place> receive(ranks);
  std::vector<const char*> rows(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    send[r] = {from + begin(r), length(r)};
    receive[r] = {staging + r * length(self), length(self)};
    rows[r] = r == self ? from + begin(self) : receive[r].data;
  }
  if (OrtStatus* s = turn.Exchange(api, send.data(), receive.data(), bytes)) return s;
  if (OrtStatus* s = SumOfRanks(api, context, type, rows.data(), ranks, sums + begin(self), length(self) / size)) {
    return s;
  }
  for (size_t r = 0; r < ranks; ++r) {
    send[r] = {sums + begin(self), length(self)};
    receive[r] = {sums + begin(r), length(r)};
  }
  if (OrtStatus* s = turn.Exchange(api, send.data(), receive.data(), bytes)) return s;
  memcpy(y, sums, bytes);
  return nullptr;
}

}  // namespace

OrtStatus* SumOfRanks(const Api& api, OrtKernelContext* context, ElementType type, const char* const* rows,
                      size_t ranks, void* y, size_t count) {
  if (count == 0) return nullptr;
  const auto sum_some = [&](size_t begin, size_t end) {
    constexpr size_t kMost = 256;
    float sum[kMost], wide[kMost];
    const float* const row = sum;
    const float one = 1;
    for (size_t i = begin; i < end; i += kMost) {
      const size_t n = std::min(kMost, end - i);
      char* const to = static_cast<char*>(y) + i * SizeOf(type);
      TheKernels()->to_float32(type, At(rows[0], i, type), sum, n);
      for (size_t r = 1; r < ranks; ++r) {
        TheKernels()->to_float32(type, At(rows[r], i, type), wide, n);
        for (size_t k = 0; k < n; ++k) sum[k] += wide[k];
      }
      if (type == kFloat32) {
        memcpy(to, sum, n * sizeof(float));
      } else {
        TheKernels()->weighted_sum(type)({&row, &one, 1, n, to});
      }
    }
  };
  return RunInTasks(api, context, sum_some, count, ranks);
}

OrtStatus* AllReduce(const Api& api, OrtKernelContext* context, const Member& member, ElementType type, const void* x,
                     void* y, size_t count) {
  if (member.ranks == 1) {
    if (x != y && count > 0) memcpy(y, x, count * SizeOf(type));
    return nullptr;
  }
  try {
    const auto run = count * SizeOf(type) <= kWhole ? Whole : InPieces;
    return run(api, context, member, type, x, y, count);
  } catch (...) {
    return OutOfMemory(api);
  }
}

}  // namespace mojo
