// Sample on the CPU.
//
// A weight is an integer, so that sums are exact in any order: the token does not depend on threads, on the other rows
// or on the device. Nothing is sorted: top-k and top-p select by partitions.
#include <float.h>
#include <math.h>
#include <string.h>

#include <algorithm>

#include "cpu/backends.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// Token is one that may be drawn.
struct Token {
  float logit;
  int32_t id;
  int64_t weight;
};

// Before orders tokens by descending logits, equal ones by ascending ids.
bool Before(const Token& a, const Token& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

constexpr double kOne = 0x1p40;  // the weight of the likeliest token

// Integer rounds to the nearest integer, and the middle to even, below 2^51.
double Integer(double v) { return (v + 0x1.8p52) - 0x1.8p52; }

// Weight is 2^40 * exp(d) for d <= 0, rounded to an integer. Each operation rounds, as in the definition, so the
// bits are the same on every device.
int64_t Weight(double d) {
  if (!(d >= -29)) return 0;
  const double n = Integer(d * 1.4426950408889634);
  const double x = (d - n * 0x1.62e42feep-1) - n * 1.90821492927058770002e-10;
  double y = 1.0 / 39916800, term[] = {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                                       1.0 / 24,      1.0 / 6,      1.0 / 2,     1.0,        1.0};
  for (const double c : term) y = y * x + c;
  const int64_t bits = (1023 + 40 + static_cast<int64_t>(n)) << 52;  // 2^(n + 40)
  double scale;
  memcpy(&scale, &bits, sizeof(scale));
  return static_cast<int64_t>(Integer(y * scale));
}

// Row is one row with its inputs and its memory.
struct Row {
  float* logits;   // [size]
  Token* tokens;   // [size]
  int64_t* early;  // [length]: sorted ids
  const float* controls;
  const int64_t* ids;  // [length], or null
  size_t size, length, prompt;
  int64_t random;

  bool Valid() const {
    const float most[] = {FLT_MAX, FLT_MAX, 1, 1, FLT_MAX, 2, 2};
    for (int i = 0; i < 7; ++i) {
      if (!(controls[i] >= (i < 5 ? 0 : -most[i]) && controls[i] <= most[i])) return false;
    }
    return true;
  }

  void Penalize() {
    const float r = controls[4], f = controls[5], q = controls[6];
    if (ids == nullptr || ((r == 0 || r == 1) && f == 0 && q == 0)) return;
    // Twice the id, plus 1 for a generated one: sorted, the prompt's come first.
    int64_t* end = early;
    for (size_t i = 0; i < length; ++i) {
      if (ids[i] >= 0 && static_cast<uint64_t>(ids[i]) < size) *end++ = 2 * ids[i] + (i >= prompt ? 1 : 0);
    }
    std::sort(early, end);
    for (const int64_t* at = early; at < end;) {
      const int64_t id = *at / 2;
      float n = 0;
      for (; at < end && *at / 2 == id; ++at) n += static_cast<float>(*at % 2);
      float l = logits[id];
      if (r != 0) l = l < 0 ? l * r : l / r;
      l -= f * n;
      logits[id] = n > 0 ? l - q : l;
    }
  }

  // Greatest returns the first place of the greatest logit, or -1 if the logits have no choice.
  int64_t Greatest() const {
    // Of eight lanes, so that the compiler uses vectors. NaN makes a sum of zeros NaN.
    float most[8], bad[8] = {};
    for (float& m : most) m = -INFINITY;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
      for (size_t k = 0; k < 8; ++k) {
        const float l = logits[i + k];
        most[k] = l > most[k] ? l : most[k];
        bad[k] += l != l ? 1 : 0;
      }
    }
    for (; i < size; ++i) {
      most[0] = logits[i] > most[0] ? logits[i] : most[0];
      bad[0] += logits[i] != logits[i] ? 1 : 0;
    }
    for (size_t k = 1; k < 8; ++k) {
      most[0] = std::max(most[0], most[k]);
      bad[0] += bad[k];
    }
    if (bad[0] != 0 || !(fabsf(most[0]) <= FLT_MAX)) return -1;
    return std::find(logits, logits + size, most[0]) - logits;
  }

  // Kth is the k-th greatest logit. It keeps the k greatest so far in a heap with the least on top.
  float Kth(size_t k) {
    float* heap = reinterpret_cast<float*>(tokens);
    std::copy(logits, logits + k, heap);
    const auto greater = [](float a, float b) { return a > b; };
    std::make_heap(heap, heap + k, greater);
    for (size_t i = k; i < size; ++i) {
      if (!(logits[i] > heap[0])) continue;
      std::pop_heap(heap, heap + k, greater);
      heap[k - 1] = logits[i];
      std::push_heap(heap, heap + k, greater);
    }
    return heap[0];
  }

  int64_t Choose() {
    if (!Valid()) return -1;
    Penalize();
    const int64_t best = Greatest();
    const float t = controls[0];
    if (best < 0 || t == 0) return best;
    const float first = logits[best] / t;
    if (!(fabsf(first) <= FLT_MAX)) return -1;
    const float k = controls[1];
    float least = -INFINITY;
    if (k >= 1 && k < static_cast<float>(size)) least = Kth(static_cast<size_t>(k));
    // Weights are 0 below a distance of 29, which a product finds sooner than a quotient. The rest is room to round.
    const double far = (first - fabs(static_cast<double>(first)) * 0x1p-22 - 30) * t;
    size_t count = 0;
    int64_t total = 0;
    for (size_t i = 0; i < size; ++i) {
      const float l = logits[i];
      if (l < least || static_cast<double>(l) < far) continue;
      const int64_t w = Weight(static_cast<double>(l / t) - static_cast<double>(first));
      tokens[count++] = {l, static_cast<int32_t>(i), w};
      total += w;
    }
    const double p = controls[2];
    Token last{-INFINITY, INT32_MAX, 0};
    if (p > 0 && p < 1) last = LastOf(count, static_cast<int64_t>(ceil(p * static_cast<double>(total))));
    const int64_t least_weight = static_cast<int64_t>(ceil(static_cast<double>(controls[3]) * kOne));
    return Draw(count, last, least_weight);
  }

  // LastOf is the token at which the sum of the weights in order reaches mass. It moves the tokens.
  Token LastOf(size_t count, int64_t mass) {
    Token *begin = tokens, *end = tokens + count;
    int64_t sum = 0;  // before begin
    while (end - begin > 1) {
      Token* middle = begin + (end - begin) / 2;
      std::nth_element(begin, middle, end, Before);
      int64_t half = 0;
      for (const Token* at = begin; at < middle; ++at) half += at->weight;
      if (sum + half >= mass) {
        end = middle;
      } else {
        sum += half;
        begin = middle;
      }
    }
    return *begin;
  }

  int64_t Draw(size_t count, const Token& last, int64_t least) {
    int64_t total = 0;
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      const Token token = tokens[i];
      if (token.weight < least || Before(last, token)) continue;
      tokens[kept++] = token;
      total += token.weight;
    }
    const int64_t most = (int64_t{1} << 53) - 1;
    const double u = static_cast<double>(std::max<int64_t>(std::min(random, most), 0)) * 0x1p-53;
    int64_t target = static_cast<int64_t>(u * static_cast<double>(total));
    target = std::max<int64_t>(std::min(target, total - 1), 0);
    // LastOf has moved the tokens: the id at which the sum by ids passes target is found by partitions too.
    Token *begin = tokens, *end = tokens + kept;
    const auto by_id = [](const Token& a, const Token& b) { return a.id < b.id; };
    while (end - begin > 1) {
      Token* middle = begin + (end - begin) / 2;
      std::nth_element(begin, middle, end, by_id);
      int64_t half = 0;
      for (const Token* at = begin; at < middle; ++at) half += at->weight;
      if (half > target) {
        end = middle;
      } else {
        target -= half;
        begin = middle;
      }
    }
    return begin->id;
  }
};

// SampleKernel is the state of one node.
struct SampleKernel : ScratchNode<SampleAttributes> {
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    SampleCall call(api, context, attributes);
    void* ids;
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = call.Make(0, &ids)) return s;
    const size_t rows = call.sizes.R, size = call.sizes.V, length = call.sizes.L;
    if (rows == 0) return nullptr;
    // Each task takes the next rows, and has its own memory.
    const size_t tasks = TaskCount(rows, 8 * size);
    float* logits;
    Token* tokens;
    int64_t* early;
    HostScratch scratch;
    if (OrtStatus* s = scratch.Divide(api, context, memory, [&](HostRoom* room) {
          logits = room->Take<float>(tasks * size);
          tokens = room->Take<Token>(tasks * size);
          early = room->Take<int64_t>(tasks * length);
        })) {
      return s;
    }
    const auto run = [&](size_t task) {
      for (size_t r = rows * task / tasks; r < rows * (task + 1) / tasks; ++r) {
        Row row{};
        row.logits = logits + task * size;
        row.tokens = tokens + task * size;
        row.early = early + task * length;
        row.controls = static_cast<const float*>(call.data[kSampleControls]) + 7 * r;
        if (const void* given = call.data[kSampleTokens]) row.ids = static_cast<const int64_t*>(given) + r * length;
        const auto* prompt = static_cast<const int64_t*>(call.data[kSamplePrompt]);
        row.prompt = prompt == nullptr ? 0 : static_cast<size_t>(std::max<int64_t>(prompt[r], 0));
        row.size = size;
        row.length = length;
        row.random = static_cast<const int64_t*>(call.data[kSampleRandom])[r];
        TheKernels()->to_float32(Input(kSampleLogits), At(call.data[kSampleLogits], r * size, Input(kSampleLogits)),
                                 row.logits, size);
        static_cast<int64_t*>(ids)[r] = row.Choose();
      }
    };
    const auto task = [](void* state, size_t i) { (*static_cast<const decltype(run)*>(state))(i); };
    return ParallelFor(api, context, task, tasks, const_cast<void*>(static_cast<const void*>(&run)));
  }
};

}  // namespace

const Backend kCPUSample = MakeBackend<SampleKernel>(nullptr);

}  // namespace mojo
