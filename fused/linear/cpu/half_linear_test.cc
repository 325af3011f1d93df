// Tests of the products that round tokens to bfloat16, against sums in double.
#include <math.h>
#include <string.h>

#include <vector>

#include "cpu/isa.h"
#include "tests/testing.h"

namespace mojo_test {
namespace {

using mojo::kPairStep;

// TestProducts multiplies tokens, as rows and as panels, with weights in either order.
void TestProducts(const mojo::BFloatFns& fns, ElementType type, bool by_rows, size_t tokens, size_t depth, size_t width,
                  std::mt19937* rng) {
  constexpr size_t kLanes = 16;
  const size_t step = (depth + kPairStep - 1) / kPairStep * kPairStep / 2, stride = (by_rows ? depth : width) + 3;
  const size_t lines = by_rows ? width : depth, panels = (tokens + kLanes - 1) / kLanes;
  const Buffer w(mojo::kBFloat16, Random(rng, (lines - 1) * stride + stride - 3, 1));
  std::vector<double> want(tokens * width), size(tokens * width);
  std::vector<float> pairs(tokens * step, NAN), bias(width, 2);
  std::vector<float> exact(panels * depth * kLanes), x(panels * step * kLanes, NAN);
  std::vector<const float*> rows;
  for (size_t m = 0; m < tokens; ++m) {
    Buffer row(type, Random(rng, depth, 1));
    if (depth > 3 && m == 1) row.Set(3, INFINITY);
    fns.round(type, row.data(), pairs.data() + m * step, depth);
    rows.push_back(pairs.data() + m * step);
    for (size_t k = 0; k < depth; ++k) {
      exact[(m / kLanes * depth + k) * kLanes + m % kLanes] = static_cast<float>(row.Get(k));
      const double rounded = Round(mojo::kBFloat16, row.Get(k));
      for (size_t n = 0; n < width; ++n) {
        const double term = rounded * w.Get(by_rows ? n * stride + k : k * stride + n);
        want[m * width + n] += term;
        size[m * width + n] += fabs(term);
      }
    }
  }
  const auto check = [&](const char* form, size_t m, size_t n, double got) {
    const size_t i = m * width + n;
    Check(Near(got, want[i], 1e-6 * size[i] + 1e-5),
          "%s, %s: token %zu of %zu, output %zu of %zu, depth %zu: %g, want %g", fns.name, form, m, tokens, n, width,
          depth, got, want[i]);
  };
  std::vector<float> y(tokens * (width + 2), -7);
  fns.product({w.data(), stride, by_rows, rows.data(), tokens, depth, width, y.data(), width + 2});
  for (size_t i = 0; i < tokens * width; ++i)
    check("rows", i / width, i % width, y[i / width * (width + 2) + i % width]);
  Check(y[width] == -7 && y.back() == -7, "%s: writes behind a row of %zu outputs", fns.name, width);
  if (!by_rows || fns.panels == nullptr) return;
  for (size_t p = 0; p < panels; ++p) {
    fns.round_panel(exact.data() + p * depth * kLanes, x.data() + p * step * kLanes, depth);
  }
  y.assign(panels * width * kLanes + 1, -7);
  fns.panels({w.data(), stride, bias.data(), x.data(), panels, depth, width, y.data(), w.data()});
  for (size_t i = 0; i < tokens * width; ++i) {
    const size_t m = i / width, n = i % width;
    check("panels", m, n, y[(m / kLanes * width + n) * kLanes + m % kLanes] - 2.0);
  }
  Check(y.back() == -7, "%s: writes behind the panels of %zu outputs", fns.name, width);
}

}  // namespace

MOJO_TEST(TestBFloat) {
  const mojo::BFloatFns* const best = mojo::BestBFloat(kernels.name);
  std::vector<const mojo::BFloatFns*> loops;
  if (best != nullptr) loops.push_back(best);
#if defined(MOJO_BFLOAT)
  if (best == &mojo::kTileBFloat) loops.push_back(&mojo::kVectorBFloat);
#endif
  Check(best == nullptr || &kernels == mojo::BestKernels("avx512"), "%s: has loops of AVX-512", kernels.name);
  std::mt19937 rng(29);
  for (const mojo::BFloatFns* fns : loops) {
    for (const size_t tokens : {1, 2, 6, 7, 16, 33, 50}) {
      for (const size_t depth : {1, 2, 31, 32, 33, 70, 576}) {
        for (const size_t width : {1, 5, 16, 32, 37, 100}) {
          for (const bool by_rows : {true, false}) {
            TestProducts(*fns, kTypes[tokens % 3], by_rows, tokens, depth, width, &rng);
          }
        }
      }
    }
  }
}

}  // namespace mojo_test
