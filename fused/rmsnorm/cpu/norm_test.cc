// RMSNorm, AddRMSNorm and GatedRMSNorm against a naive reference in double.
#include <math.h>

#include "tests/testing.h"

namespace mojo_test {
namespace {

using mojo::NormArgs;
using mojo::NormFn;
using mojo::NormKey;

struct Case {
  Buffer x, residual, scale;
  size_t rows, width;
  float epsilon;
};

// NormBuffers are the tensors of a norm with a gate.
struct NormBuffers {
  Buffer x, gate, y;
};

// The errors of narrow results of ordinary numbers, by scale_after_cast.
Exactness exactness[2];

// RunAndCompare runs one combination on one case. sum_given = false omits the output sum, in place writes Y over X.
void RunAndCompare(const mojo::KernelTable& kernels, const NormKey& key, const Case& c, bool sum_given, bool in_place) {
  const NormFn run = kernels.norm(key);
  Check(run != nullptr, "%s: no norm for x %s y %s", kernels.name, TypeName(key.x), TypeName(key.y));
  if (run == nullptr) return;
  const size_t n = c.rows * c.width;
  Buffer x(c.x), y(key.y, n), sum(key.x, n);
  NormArgs args{};
  args.x = x.data();
  args.residual = c.residual.data();
  args.scale = static_cast<const float*>(c.scale.data());
  args.y = in_place ? x.data() : y.data();
  args.sum = key.add && sum_given ? sum.data() : nullptr;
  args.width = c.width;
  args.epsilon = c.epsilon;
  // In two pieces, as two threads would.
  run(args, 0, c.rows / 2);
  run(args, c.rows / 2, c.rows);
  const Buffer& out = in_place ? x : y;
  for (size_t row = 0; row < c.rows; ++row) {
    std::vector<double> v(c.width);
    double squares = 0;
    for (size_t i = 0; i < c.width; ++i) {
      const size_t at = row * c.width + i;
      v[i] = c.x.Get(at);
      if (key.add) {
        v[i] = Round(key.x, Round(mojo::kFloat32, v[i] + c.residual.Get(at)));
        if (sum_given) {
          Check(Near(sum.Get(at), v[i], 0), "%s: AddRMSNorm %s width %zu: sum %g, want %g", kernels.name,
                TypeName(key.x), c.width, sum.Get(at), v[i]);
        }
      }
      squares += Round(mojo::kFloat32, v[i] * v[i]);
    }
    // A mean beyond float32 is infinite there, and the row becomes 0; a sum beyond float32 must not do that.
    const double mean = Round(mojo::kFloat32, squares / static_cast<double>(c.width));
    const double inv = 1 / sqrt(mean + c.epsilon);
    for (size_t i = 0; i < c.width; ++i) {
      double n_i = v[i] * inv;
      if (key.scale_after_cast) n_i = Round(key.y, n_i);
      const double want = Round(key.y, n_i * c.scale.Get(i));
      const double got = out.Get(row * c.width + i);
      // Float32's own error is a few units; a narrow type adds one error per rounding, since a float32 near a tie may
      // go the other way.
      double tolerance = fabs(want) * 1e-6 + 1e-44;
      if (key.y != mojo::kFloat32) {
        tolerance += fabs(want) * Epsilon(key.y) * (key.scale_after_cast ? 2 : 1) + 1e-7;
      }
      if (key.y != mojo::kFloat32 && want != 0) exactness[key.scale_after_cast].Count(got, want);
      Check(Near(got, want, tolerance), "%s: %s x %s y %s after %d width %zu at %zu: %.9g, want %.9g", kernels.name,
            key.add ? "AddRMSNorm" : "RMSNorm", TypeName(key.x), TypeName(key.y), key.scale_after_cast, c.width, i, got,
            want);
    }
  }
}

// Keys are all combinations of the ops.
std::vector<NormKey> Keys() {
  std::vector<NormKey> keys;
  for (const ElementType x : kTypes) {
    for (const ElementType y : kTypes) {
      for (const bool after : {false, true}) {
        if (x != y && !(x == mojo::kFloat32 && after)) continue;
        for (const bool add : {false, true}) {
          keys.push_back({x, y, after, add});
        }
      }
    }
  }
  return keys;
}

// Extremes: rows of the numbers at which float32 overflows, underflows or is NaN.
void TestExtremes(const mojo::KernelTable& kernels, const NormKey& key) {
  const double inf = INFINITY;
  const std::vector<double> specials = {0, 1e-30, 1e-45, 1e19, 3e19, 3e38, -3e38, 65504, 6e-8, inf, -inf, NAN};
  const size_t width = 19;
  std::vector<double> x;
  for (const double s : specials) {
    for (size_t i = 0; i < width; ++i) x.push_back(i % 3 == 0 ? s : i % 3 == 1 ? -s : s / 2);
    for (size_t i = 0; i < width; ++i) x.push_back(i == 7 ? s : 0);
  }
  const std::vector<double> ones(width, 1.0);
  const Case c{Buffer(key.x, x),
               Buffer(key.x, std::vector<double>(x.size(), 0.0)),
               Buffer(mojo::kFloat32, ones),
               x.size() / width,
               width,
               1e-6f};
  RunAndCompare(kernels, key, c, true, false);
}

// RunGated runs a norm with a gate on rows of width random numbers; scale has as many rows as groups. It writes the
// result to on, which may be an input.
void RunGated(const mojo::KernelTable& kernels, const NormKey& key, size_t rows, size_t width, size_t groups,
              double size, Buffer NormBuffers::* on, std::mt19937* rng) {
  const NormFn run = kernels.norm(key);
  Check(run != nullptr, "%s: no gated norm for x %s y %s", kernels.name, TypeName(key.x), TypeName(key.y));
  if (run == nullptr) return;
  const size_t n = rows * width;
  const NormBuffers in{{key.x, Random(rng, n, size)}, {key.y, Random(rng, n, 3)}, {key.y, n}};
  const Buffer scale(mojo::kFloat32, Random(rng, groups * width, 1));
  NormBuffers b(in);
  Buffer& out = b.*on;
  NormArgs args{};
  args.x = b.x.data();
  args.gate = b.gate.data();
  args.scale = static_cast<const float*>(scale.data());
  args.y = out.data();
  args.width = width;
  args.groups = groups;
  args.epsilon = 1e-5f;
  run(args, 0, rows / 2);
  run(args, rows / 2, rows);
  const bool first = key.gate == mojo::kGateThenNorm;
  for (size_t row = 0; row < rows; ++row) {
    std::vector<double> v(width), a(width);
    double squares = 0;
    for (size_t i = 0; i < width; ++i) {
      const double gate = in.gate.Get(row * width + i);
      a[i] = gate / (1 + exp(-gate));
      v[i] = in.x.Get(row * width + i) * (first ? a[i] : 1);
      squares += v[i] * v[i];
    }
    const double inv = 1 / sqrt(squares / static_cast<double>(width) + args.epsilon);
    const auto rounded = [&](double x) { return key.scale_after_cast ? Round(key.y, x) : x; };
    for (size_t i = 0; i < width; ++i) {
      double want = rounded(v[i] * inv) * scale.Get(row % groups * width + i);
      if (!first) want = rounded(want) * a[i];
      want = Round(key.y, want);
      const double got = out.Get(row * width + i);
      double tolerance = fabs(want) * 2e-6 + 1e-44;
      if (key.y != mojo::kFloat32) {
        tolerance += fabs(want) * Epsilon(key.y) * (key.scale_after_cast ? 3 : 1) + 1e-7;
        exactness[key.scale_after_cast].Count(got, want);
      }
      Check(Near(got, want, tolerance),
            "%s: GatedRMSNorm x %s y %s after %d gate %d groups %zu width %zu at %zu: %.9g, "
            "want %.9g",
            kernels.name, TypeName(key.x), TypeName(key.y), key.scale_after_cast, key.gate, groups, width, i, got,
            want);
    }
  }
}

// TestGated runs all combinations, with rows too wide to be kept and rows whose squares overflow only in the sum.
void TestGated(const mojo::KernelTable& kernels, std::mt19937* rng) {
  std::vector<NormKey> keys;
  for (const ElementType y : kTypes) {
    for (const bool after : {false, true}) keys.push_back({y, y, after, false});
    if (y != mojo::kFloat32) keys.push_back({mojo::kFloat32, y, false, false});
  }
  for (NormKey key : keys) {
    for (const mojo::NormGate gate : {mojo::kNormThenGate, mojo::kGateThenNorm}) {
      key.gate = gate;
      for (const size_t width : kSizes) {
        for (const size_t groups : {1, 3}) RunGated(kernels, key, 6, width, groups, 3, &NormBuffers::y, rng);
        RunGated(kernels, key, 3, width, 1, 3, &NormBuffers::gate, rng);
        if (key.x == key.y) RunGated(kernels, key, 3, width, 1, 3, &NormBuffers::x, rng);
      }
      RunGated(kernels, key, 2, 5000, 2, 3, &NormBuffers::y, rng);
      if (key.x != mojo::kFloat16) RunGated(kernels, key, 2, 5000, 1, 2e17, &NormBuffers::y, rng);
    }
  }
}

}  // namespace

MOJO_TEST(TestNorms) {
  std::mt19937 rng(7);
  for (Exactness& e : exactness) e = Exactness();
  for (const NormKey& key : Keys()) {
    for (const size_t width : kSizes) {
      for (const size_t rows : {size_t{0}, size_t{1}, size_t{3}}) {
        const Case c{Buffer(key.x, Random(&rng, rows * width, 3)),
                     Buffer(key.x, Random(&rng, rows * width, 3)),
                     Buffer(mojo::kFloat32, Random(&rng, width, 1)),
                     rows,
                     width,
                     1e-5f};
        RunAndCompare(kernels, key, c, true, false);
        if (key.x == key.y) RunAndCompare(kernels, key, c, true, true);
        if (key.add) RunAndCompare(kernels, key, c, false, false);
      }
    }
    TestExtremes(kernels, key);
  }
  TestGated(kernels, &rng);
  for (const Exactness& e : exactness) {
    Check(e.Good(), "%s: norms: %ld of %ld narrow results differ", kernels.name, e.different, e.total);
  }
  Check(kernels.norm({mojo::kFloat16, mojo::kFloat32, true, false}) == nullptr,
        "%s: a norm for a combination that no op has", kernels.name);
  // Sums of all kinds of float16 and bfloat16, to show the rounding to the type.
  for (const ElementType type : {mojo::kFloat16, mojo::kBFloat16}) {
    std::vector<double> a, b;
    Buffer one(type, 1);
    for (int i = 0; i < 65536; i += 3) {
      *static_cast<uint16_t*>(one.data()) = static_cast<uint16_t>(i);
      a.push_back(one.Get(0));
      *static_cast<uint16_t*>(one.data()) = static_cast<uint16_t>(rng());
      b.push_back(one.Get(0) * (i % 2 == 0 ? 1 : ldexp(1, -9)));
    }
    const Case c{
        Buffer(type, a), Buffer(type, b), Buffer(mojo::kFloat32, std::vector<double>{1.0}), a.size(), 1, 1e-5f};
    RunAndCompare(kernels, {type, type, false, true}, c, true, false);
  }
}

}  // namespace mojo_test
