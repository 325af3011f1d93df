// TopKRouter against its definition in double on the host. Exits 1 on a failure.
// `make cuda-programs` builds it.
#include <algorithm>
#include <numeric>

#include "cuda/tests/host.h"

namespace {

double Score(mojo::Score score, double v) {
  if (score == mojo::Score::kSigmoid) return 1 / (1 + exp(-v));
  return sqrt(log1p(exp(v)));
}

void Softmax(std::vector<double>* v) {
  const double most = *std::max_element(v->begin(), v->end());
  double sum = 0;
  for (double& e : *v) sum += e = exp(e - most);
  for (double& e : *v) e /= sum;
}

// Best returns the n greatest of v, of equals the lowest first, and the least distance between two that are
// not equal and whose order matters.
std::vector<size_t> Best(const std::vector<double>& v, size_t n, double* gap) {
  std::vector<size_t> order(v.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return v[i] > v[j]; });
  for (size_t i = 0; i < n && i + 1 < order.size(); ++i) {
    const double d = v[order[i]] - v[order[i + 1]], size = fabs(v[order[i]]) + 1e-30;
    if (d > 0 && !isinf(d)) *gap = fmin(*gap, d / size);
  }
  order.resize(n);
  return order;
}

int failures = 0, checks = 0, close_rows = 0;

struct Form {
  MojoType type, bias_type;
  bool bias;
  mojo::Score score;
  bool top_k_first, top2, renormalize;
  size_t groups, group_top_k;
  float excluded, epsilon, scale;
};

void Test(const Form& f, size_t rows, size_t experts, size_t top_k, Random* random) {
  char name[200];
  snprintf(name, sizeof(name), "rows %zu E %zu k %zu %s bias %s score %d first %d groups %zu of %zu %s renormalize %d",
           rows, experts, top_k, TypeName(f.type), f.bias ? TypeName(f.bias_type) : "none", static_cast<int>(f.score),
           f.top_k_first, f.group_top_k, f.groups, f.top2 ? "top2" : "max", f.renormalize);
  Numbers logits(f.type, rows * experts), bias(f.bias_type, experts), weights(kMojoFloat32, rows * top_k);
  Ids ids(rows * top_k);
  for (size_t i = 0; i < logits.count(); ++i) {
    const size_t hard = random->Below(200);  // equal and missing ones
    logits.Set(i, hard == 0 ? -INFINITY : hard < 8 ? 0.5f : random->Normal() * 2);
  }
  bias.Fill(random, 0.2f);
  logits.ToDevice();
  bias.ToDevice();
  MojoTopKRouterArgs a = {};
  a.logits = logits.device();
  a.bias = f.bias ? bias.device() : nullptr;
  a.weights = static_cast<float*>(weights.device());
  a.ids = ids.device;
  a.rows = rows;
  a.experts = experts;
  a.top_k = top_k;
  a.logits_type = f.type;
  a.bias_type = f.bias_type;
  a.score = f.score;
  a.top_k_first = f.top_k_first;
  a.groups = f.groups;
  a.group_top_k = f.group_top_k;
  a.top2_sum = f.top2;
  a.excluded_score = f.excluded;
  a.renormalize = f.renormalize;
  a.epsilon = f.epsilon;
  a.scale = f.scale;
  Numbers scratch(kMojoFloat32, MojoTopKRouterScratch(&a) / 4 + 1);
  a.scratch = scratch.device();
  Check(MojoCudaTopKRouter(&a, nullptr), name);
  Check(cudaDeviceSynchronize(), name);
  weights.ToHost();
  ids.ToHost();
  const std::vector<char> first = weights.bytes();
  const std::vector<int64_t> first_ids = ids.host;
  weights.Poison();
  Check(cudaMemset(ids.device, 0xff, ids.host.size() * 8), "poison");
  Check(MojoCudaTopKRouter(&a, nullptr), name);
  Check(cudaDeviceSynchronize(), name);
  weights.ToHost();
  ids.ToHost();
  bool fine = first == weights.bytes() && first_ids == ids.host && weights.Guarded() && scratch.Guarded();
  if (!fine) printf("other bits in a second run, or writes outside: %s\n", name);
  for (size_t r = 0; r < rows && fine; ++r) {
    std::vector<double> score(experts), choice(experts);
    for (size_t e = 0; e < experts; ++e) score[e] = logits.Get(r * experts + e);
    if (!f.top_k_first) {
      if (f.score == mojo::Score::kSoftmax) {
        Softmax(&score);
      } else {
        for (double& s : score) s = Score(f.score, s);
      }
    }
    for (size_t e = 0; e < experts; ++e) choice[e] = score[e] + (f.bias ? bias.Get(e) : 0);
    double gap = 1;
    if (f.groups > 1) {
      const size_t size = experts / f.groups;
      std::vector<double> group(f.groups);
      for (size_t g = 0; g < f.groups; ++g) {
        std::vector<double> in(choice.begin() + g * size, choice.begin() + (g + 1) * size);
        std::sort(in.rbegin(), in.rend());
        group[g] = f.top2 && size > 1 ? in[0] + in[1] : f.top2 ? -INFINITY : in[0];
      }
      std::vector<bool> kept(f.groups);
      for (size_t g : Best(group, f.group_top_k, &gap)) kept[g] = true;
      for (size_t e = 0; e < experts; ++e) {
        if (!kept[e / size]) choice[e] = f.excluded;
      }
    }
    const std::vector<size_t> best = Best(choice, top_k, &gap);
    // Nearer than float32 can tell apart: any order is right.
    if (gap < 2e-6) {
      ++close_rows;
      continue;
    }
    std::vector<double> want(top_k);
    for (size_t j = 0; j < top_k; ++j) want[j] = score[best[j]];
    if (f.top_k_first) {
      if (f.score == mojo::Score::kSoftmax) {
        Softmax(&want);
      } else {
        for (double& w : want) w = Score(f.score, w);
      }
    }
    const double sum = std::accumulate(want.begin(), want.end(), 0.0);
    for (size_t j = 0; j < top_k && fine; ++j) {
      const double w = (f.renormalize ? want[j] / (sum + f.epsilon) : want[j]) * f.scale,
                   got = weights.Get(r * top_k + j);
      const bool same = w != w ? got != got : fabs(got - w) <= 1e-5 * fabs(w) + 1e-9;
      fine = same && ids.host[r * top_k + j] == static_cast<int64_t>(best[j]);
      if (!fine) {
        printf("row %zu choice %zu: expert %lld with %g, not %zu with %g: %s\n", r, j,
               static_cast<long long>(ids.host[r * top_k + j]), got, best[j], w, name);
      }
    }
  }
  ++checks;
  if (!fine && ++failures > 40) exit(1);
}

}  // namespace

int main() {
  Random random(3);
  const MojoType types[] = {kMojoFloat32, kMojoFloat16, kMojoBFloat16};
  struct Shape {
    size_t experts, top_k, groups, group_top_k;
  };
  const Shape shapes[] = {{128, 8, 1, 1},   {256, 8, 8, 4},  {32, 4, 1, 1},  {8, 2, 1, 1},      {160, 6, 8, 3},
                          {64, 6, 1, 1},    {512, 16, 1, 1}, {5, 5, 1, 1},   {1, 1, 1, 1},      {60, 4, 4, 2},
                          {384, 8, 32, 7},  {256, 32, 1, 1}, {600, 8, 1, 1}, {1000, 40, 10, 5}, {40, 33, 1, 1},
                          {100, 3, 50, 20}, {72, 8, 9, 9}};
  int n = 0;
  for (const Shape& s : shapes) {
    for (const MojoType type : types) {
      for (int form = 0; form < 8; ++form, ++n) {
        Form f = {};
        f.type = type;
        f.bias_type = types[n / 3 % 3];
        f.bias = form % 2 != 0;
        f.score = form < 3 ? mojo::Score::kSoftmax : form < 6 ? mojo::Score::kSigmoid : mojo::Score::kSqrtsoftplus;
        f.top_k_first = form == 2 || form == 5;
        f.groups = f.top_k_first ? 1 : s.groups;
        f.group_top_k = f.top_k_first ? 1 : s.group_top_k;
        f.top2 = n % 2 != 0;
        f.excluded = n % 3 == 0 && s.top_k <= s.experts / s.groups * s.group_top_k ? 0.0f : -INFINITY;
        f.renormalize = n % 4 < 2;
        f.epsilon = n % 3 == 0 ? 1e-20f : 0;
        f.scale = n % 5 == 0 ? 2.5f : 1;
        for (const size_t rows : {0, 1, 3, 8, 33, 512}) Test(f, rows, s.experts, s.top_k, &random);
      }
    }
  }
  Form f = {kMojoBFloat16, kMojoFloat32, true, mojo::Score::kSigmoid, false, true, true, 8, 4, 0, 1e-20f, 2.5f};
  Test(f, 4096, 256, 8, &random);
  f = {kMojoBFloat16, kMojoFloat32, false, mojo::Score::kSoftmax, false, false, true, 1, 1, 0, 0, 1};
  Test(f, 4096, 128, 8, &random);
  printf("router_test: %d checks, %d failed (%d rows too close to call)\n", checks, failures, close_rows);
  return failures == 0 ? 0 : 1;
}
