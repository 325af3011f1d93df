// TopKRouter against a naive reference. Experts must be the same unless scores are too close to tell; weights may
// differ by a few units in the last place.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "tests/testing.h"

namespace mojo_test {
namespace {

// Sigmoid is onnxruntime's 1 / (1 + exp(-x)), which is less exact for small results. fma says whether sums of products
// are rounded once.
double Sigmoid(double exact, bool fma) {
  const float x = std::min(18.0f, std::max(-18.0f, static_cast<float>(exact))), square = x * x;
  const auto polynomial = [&](std::initializer_list<float> factors) {
    float sum = 0;
    for (const float c : factors) sum = fma ? fmaf(sum, square, c) : sum * square + c;
    return sum;
  };
  const float p = x * polynomial({4.37031012579801e-11f, 1.15627324459942e-07f, 6.08574864600143e-05f,
                                  8.51377133304701e-03f, 2.48287947061529e-01f});
  const float q = polynomial({6.10247389755681e-13f, 5.76102136993427e-09f, 6.29106785017040e-06f,
                              1.70198817374094e-03f, 1.16817656904453e-01f, 9.93151921023180e-01f});
  const double y = static_cast<double>(std::max(0.0f, p / q + 0.5f)), want = 1 / (1 + exp(-exact));
  Check(Near(y, want, 1.5e-7), "the sigmoid of %g is %.9g, want %.9g", exact, y, want);
  return y;
}

// Reference is one row by the definition, in double, with that sigmoid.
struct Reference {
  std::vector<double> scores, choice;  // choice: the scores that experts are chosen by
  bool close = false;                  // groups are too close to tell which are better
  bool fma;                            // of the sigmoid

  Reference(const mojo::RouterArgs& args, const std::vector<double>& logits, const std::vector<double>& bias, bool once)
      : scores(logits), choice(logits.size()), fma(once) {
    if (!args.top_k_first) Score(args.score, &scores);
    for (size_t i = 0; i < scores.size(); ++i) choice[i] = scores[i] + (bias.empty() ? 0 : bias[i]);
    if (args.groups == 1) return;
    const size_t size = scores.size() / args.groups;
    std::vector<double> best(args.groups);
    for (size_t g = 0; g < args.groups; ++g) {
      std::vector<double> group(choice.begin() + static_cast<long>(g * size),
                                choice.begin() + static_cast<long>((g + 1) * size));
      std::sort(group.rbegin(), group.rend());
      best[g] = args.top2_sum ? group[0] + group[1] : group[0];
    }
    const std::vector<size_t> order = Order(best);
    for (size_t g = args.group_top_k; g < args.groups; ++g) {
      close = close || fabs(best[order[g]] - best[order[args.group_top_k - 1]]) < 1e-5;
      for (size_t i = 0; i < size; ++i) choice[order[g] * size + i] = static_cast<double>(args.excluded);
    }
  }

  void Score(mojo::Score score, std::vector<double>* v) const {
    if (score == mojo::Score::kSigmoid) {
      for (double& x : *v) x = Sigmoid(x, fma);
      return;
    }
    if (score == mojo::Score::kSqrtsoftplus) {
      for (double& x : *v) x = sqrt(x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)));
      return;
    }
    const double most = *std::max_element(v->begin(), v->end());
    double sum = 0;
    for (double& x : *v) sum += x = exp(x - most);
    for (double& x : *v) x /= sum;
  }

  // Order returns the places of the greatest, the first of equals first.
  static std::vector<size_t> Order(const std::vector<double>& v) {
    std::vector<size_t> order(v.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return v[a] > v[b]; });
    return order;
  }
};

void RunAndCompare(const mojo::KernelTable& kernels, mojo::RouterArgs args, size_t rows, bool with_bias, double spread,
                   std::mt19937* rng) {
#if defined(__aarch64__)
  const bool fma = true;
#else
  const bool fma = strcmp(kernels.name, "portable") != 0;
#endif
  const size_t n = args.experts, k = args.top_k;
  const Buffer logits(args.logits_type, Random(rng, rows * n, spread));
  const Buffer bias(args.bias_type, Random(rng, n, 0.25));
  Buffer weights(mojo::kFloat32, rows * k);
  std::vector<int64_t> ids(rows * k, -1);
  args.logits = logits.data();
  args.bias = with_bias ? bias.data() : nullptr;
  args.weights = static_cast<float*>(weights.data());
  args.ids = ids.data();
  kernels.router(args, 0, rows / 2);
  kernels.router(args, rows / 2, rows);
  for (size_t row = 0; row < rows; ++row) {
    std::vector<double> z(n), b(with_bias ? n : 0);
    for (size_t i = 0; i < n; ++i) z[i] = logits.Get(row * n + i);
    for (size_t i = 0; i < b.size(); ++i) b[i] = bias.Get(i);
    const Reference want(args, z, b, fma);
    if (want.close) continue;
    const std::vector<size_t> order = Reference::Order(want.choice);
    std::vector<double> w;
    std::vector<bool> taken(n);
    for (size_t j = 0; j < k; ++j) {
      const int64_t id = ids[row * k + j];
      const bool valid = id >= 0 && id < static_cast<int64_t>(n) && !taken[static_cast<size_t>(id)];
      Check(valid, "%s: TopKRouter of %zu, row %zu: choice %zu is %lld", kernels.name, n, row, j,
            static_cast<long long>(id));
      if (!valid) return;
      taken[static_cast<size_t>(id)] = true;
      const double got = want.choice[static_cast<size_t>(id)], best = want.choice[order[j]];
      Check(Near(got, best, 2e-6 * (1 + fabs(best))),
            "%s: TopKRouter of %zu, row %zu: choice %zu is %lld with %.9g, want %zu with %.9g", kernels.name, n, row, j,
            static_cast<long long>(id), got, order[j], best);
      w.push_back(want.scores[static_cast<size_t>(id)]);
    }
    if (args.top_k_first) want.Score(args.score, &w);
    double sum = 0;
    for (const double x : w) sum += x;
    for (size_t j = 0; j < k; ++j) {
      const double v = (args.renormalize ? w[j] / (sum + static_cast<double>(args.epsilon)) : w[j]) *
                       static_cast<double>(args.scale);
      Check(Near(weights.Get(row * k + j), v, 2e-6 * fabs(v) + 1e-30),
            "%s: TopKRouter of %zu, row %zu: weight %zu is %.9g, want %.9g", kernels.name, n, row, j,
            weights.Get(row * k + j), v);
    }
  }
}

// One row of float32 logits, its choice by softmax and no more.
std::vector<int64_t> Choose(const mojo::KernelTable& kernels, const std::vector<float>& logits, size_t k) {
  mojo::RouterArgs args{};
  std::vector<float> weights(k);
  std::vector<int64_t> ids(k);
  args.logits = logits.data();
  args.weights = weights.data();
  args.ids = ids.data();
  args.experts = logits.size();
  args.top_k = k;
  args.groups = args.group_top_k = 1;
  args.scale = 1;
  args.top_k_first = true;
  kernels.router(args, 0, 1);
  return ids;
}

}  // namespace

MOJO_TEST(TestRouter) {
  std::mt19937 rng(29);
  for (const ElementType type : kTypes) {
    for (const size_t n : {size_t{1}, size_t{4}, size_t{8}, size_t{16}, size_t{60}, size_t{64}, size_t{130},
                           size_t{256}, size_t{1024}}) {
      for (int bits = 0; bits < 64; ++bits) {
        if ((bits & 33) == 33) continue;
        mojo::RouterArgs args{};
        args.logits_type = type;
        args.bias_type = kTypes[static_cast<size_t>(bits) % 3];
        args.experts = n;
        args.groups = args.group_top_k = 1;
        args.score = bits & 1 ? mojo::Score::kSigmoid : bits & 32 ? mojo::Score::kSqrtsoftplus : mojo::Score::kSoftmax;
        args.top_k_first = bits & 2;
        args.renormalize = bits & 4;
        args.epsilon = bits & 8 ? 0.125f : 0;
        args.scale = bits & 8 ? 2.5f : 1;
        for (const size_t k : {size_t{1}, size_t{6}, size_t{8}, n}) {
          if (k > 256) continue;
          args.top_k = std::min(k, n);
          RunAndCompare(kernels, args, 3, bits & 16, 2, &rng);
        }
        if (args.top_k_first || n % 4 != 0 || n < 8) continue;
        args.groups = n / 4;
        args.group_top_k = std::min<size_t>(2, args.groups);
        args.top_k = 5;
        args.top2_sum = bits & 4;
        args.excluded = bits & 8 ? -INFINITY : 0;
        // With 0 for the others, no choice may depend on ties: all scores are above it, except with a bias.
        RunAndCompare(kernels, args, 3, bits & 16 && args.excluded != 0, 2, &rng);
      }
    }
  }
  mojo::RouterArgs far{};
  far.experts = 64, far.top_k = 4, far.groups = far.group_top_k = 1, far.scale = 1;
  RunAndCompare(kernels, far, 5, false, 20, &rng);
  // The first of equals, whatever lanes they are in; every one once.
  const float inf = INFINITY;
  const auto check = [&](std::vector<float> logits, const std::vector<int64_t>& want) {
    Check(Choose(kernels, logits, want.size()) == want, "%s: TopKRouter: another choice for logits %g, %g, ...",
          kernels.name, static_cast<double>(logits[0]), static_cast<double>(logits[1]));
  };
  std::vector<float> ties(40, 1);
  ties[39] = ties[17] = ties[18] = ties[3] = 2;
  check(ties, {3, 17, 18, 39, 0, 1, 2, 4});
  check({-0.0f, 0, -0.0f, 0}, {0, 1, 2, 3});
  check({-inf, -inf, 1, -inf}, {2, 0, 1, 3});
  check({1, inf, NAN, -NAN, -1, -inf}, {2, 3, 1, 0, 4, 5});
  check({-3, -2, -1, -4, -5e-39f}, {4, 2, 1, 0, 3});
}

}  // namespace mojo_test
