// Sample against its definition on the host, which sorts each row. Exits 1 on a failure. `make cuda-programs` builds
// it.
#include <algorithm>
#include <numeric>

#include "cuda/bench/timing.h"
#include "cuda/tests/tally.h"

namespace {

enum Control { kTemperature, kTopK, kTopP, kMinP, kRepetition, kFrequency, kPresence, kControls };

// Weight is round(2^40 * exp(d)) by the polynomial of the definition. Nothing may fuse its products and sums.
int64_t Weight(double d) {
  if (!(d >= -29)) return 0;
  const volatile double n = nearbyint(d * 1.4426950408889634), high = n * 0x1.62e42feep-1,
                        low = n * 1.90821492927058770002e-10;
  const volatile double rest = d - high, x = rest - low;
  volatile double y = 1.0 / 39916800;
  for (const double term : {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24,
                            1.0 / 6, 1.0 / 2, 1.0, 1.0}) {
    const volatile double product = y * x;
    y = product + term;
  }
  return static_cast<int64_t>(nearbyint(ldexp(y, static_cast<int>(n) + 40)));
}

// Penalize changes the logits of earlier tokens.
void Penalize(std::vector<float>* l, const float* c, const int64_t* tokens, size_t length, int64_t prompt) {
  const int64_t v = static_cast<int64_t>(l->size());
  std::vector<int> seen(l->size()), count(l->size());
  for (size_t i = 0; i < length; ++i) {
    if (tokens[i] < 0 || tokens[i] >= v) continue;
    seen[tokens[i]] = 1;
    count[tokens[i]] += static_cast<int64_t>(i) >= prompt;
  }
  for (size_t i = 0; i < l->size(); ++i) {
    if (seen[i] == 0) continue;
    float& x = (*l)[i];
    if (c[kRepetition] != 0) x = x < 0 ? x * c[kRepetition] : x / c[kRepetition];
    const volatile float frequency = c[kFrequency] * static_cast<float>(count[i]);
    x -= frequency;
    if (count[i] > 0) x -= c[kPresence];
  }
}

// Choose is the token of a row.
int64_t Choose(const std::vector<float>& l, const float* c, int64_t random) {
  const size_t v = l.size();
  if (std::any_of(l.begin(), l.end(), [](float x) { return isnan(x) || x == INFINITY; })) return -1;
  std::vector<uint32_t> order(v);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return l[a] > l[b]; });
  if (l[order[0]] == -INFINITY) return -1;
  if (c[kTemperature] == 0) return order[0];
  const float most = l[order[0]] / c[kTemperature];
  if (isinf(most)) return -1;
  const float least = c[kTopK] >= 1 && c[kTopK] < v ? l[order[static_cast<size_t>(c[kTopK]) - 1]] : -INFINITY;
  std::vector<int64_t> w(v);
  for (size_t i = 0; i < v; ++i) {
    if (l[i] >= least) w[i] = Weight(static_cast<double>(l[i] / c[kTemperature]) - static_cast<double>(most));
  }
  const auto sum = [&] { return std::accumulate(w.begin(), w.end(), int64_t{0}); };
  if (c[kTopP] > 0 && c[kTopP] < 1) {
    const double enough = ceil(static_cast<double>(c[kTopP]) * static_cast<double>(sum()));
    int64_t before = 0;
    for (uint32_t i : order) {
      const int64_t own = w[i];
      if (before >= static_cast<int64_t>(enough)) w[i] = 0;
      before += own;
    }
  }
  for (int64_t& one : w) {
    if (one < static_cast<int64_t>(ceil(static_cast<double>(c[kMinP]) * 0x1p40))) one = 0;
  }
  const int64_t kept = sum();
  int64_t before = std::min(static_cast<int64_t>(static_cast<double>(random) * 0x1p-53 * kept), kept - 1);
  for (size_t i = 0; i < v; ++i) {
    before -= w[i];
    if (before < 0) return static_cast<int64_t>(i);
  }
  return -1;
}

enum Logits { kUsual, kTies, kMissing, kBad };

void Test(Tally* tally, MojoType type, size_t rows, size_t v, Logits kind, Random* random) {
  constexpr size_t kLength = 300;
  const std::string name =
      std::to_string(rows) + " rows of " + std::to_string(v) + " " + TypeName(type) + ", kind " + std::to_string(kind);
  const auto part = [&] { return static_cast<float>(random->Next() >> 8) / 0x1p24f; };
  Numbers logits(type, rows * v);
  std::vector<float> controls(rows * kControls);
  std::vector<int64_t> numbers(rows), tokens(rows * kLength), prompt(rows);
  for (size_t i = 0; i < rows * v; ++i) {
    const float x = 3 * random->Normal();
    logits.Set(i, kind == kTies ? roundf(x) : kind == kMissing && random->Below(2) == 0 ? -INFINITY : x);
  }
  for (size_t r = 0; r < rows; ++r) {
    const float all[] = {
        0.3f + part(), floorf(part() * static_cast<float>(v + 5)), part(), part() * 0.2f, 0.5f + part(), 4 * part() - 2,
        4 * part() - 2};
    for (int i = 0; i < kControls; ++i) controls[r * kControls + i] = random->Below(2) == 0 ? all[i] : 0;
    numbers[r] = static_cast<int64_t>(random->Next()) << 21 | random->Next() >> 11;
    prompt[r] = static_cast<int64_t>(random->Below(kLength));
    if (kind == kMissing) logits.Set(r * v + random->Below(v), 1);
  }
  if (kind == kBad) logits.Set(random->Below(rows) * v, random->Below(2) == 0 ? NAN : INFINITY);
  for (int64_t& t : tokens) t = static_cast<int64_t>(random->Below(v + 2)) - 1;
  logits.ToDevice();
  const OnDevice<float> d_controls(controls);
  const OnDevice<int64_t> d_numbers(numbers), d_tokens(tokens), d_prompt(prompt);
  Ids ids(rows);
  MojoSampleArgs a;
  a.logits = logits.device(), a.controls = d_controls.data, a.random = d_numbers.data, a.ids = ids.device;
  a.tokens = d_tokens.data, a.prompt = d_prompt.data;
  a.rows = rows, a.vocabulary = v, a.length = kLength, a.logits_type = type;
  a.scratch = Allocate(MojoSampleScratch(&a));
  std::vector<int64_t> want(rows);
  InParallel(rows, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      std::vector<float> l(v);
      for (size_t i = 0; i < v; ++i) l[i] = logits.Get(r * v + i);
      const float* const c = &controls[r * kControls];
      Penalize(&l, c, &tokens[r * kLength], kLength, prompt[r]);
      want[r] = Choose(l, c, numbers[r]);
    }
  });
  for (const char* const call : {"", ", again"}) {
    Check(cudaMemset(ids.device, 0x55, rows * 8), "poison");
    Done(tally, name + call, MojoCudaSample(&a, nullptr));
    ids.ToHost();
    for (size_t r = 0; r < rows; ++r) {
      if (ids.host[r] == want[r]) continue;
      const std::string what =
          "row " + std::to_string(r) + " is " + std::to_string(ids.host[r]) + ", not " + std::to_string(want[r]);
      Fail(tally, name + call, what.c_str());
    }
  }
  cudaFree(a.scratch);
}

}  // namespace

int main() {
  Tally tally{"Sample"};
  Random random(1);
  for (const MojoType type : {kMojoFloat32, kMojoFloat16, kMojoBFloat16}) {
    for (const size_t v : {1, 2, 31, 33, 1000, 5000, 32064, 151936}) {
      for (const size_t rows : {1, 3, 8, 20, 40, 70}) {
        for (const Logits kind : {kUsual, kTies, kMissing, kBad}) {
          if (v * rows < 3000000) Test(&tally, type, rows, v, kind, &random);
        }
      }
    }
  }
  return Report({&tally});
}
