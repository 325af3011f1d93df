// NormQuantize against a naive reference in double, and its roundings at ties and extremes.
#include <math.h>

#include "tests/testing.h"

namespace mojo_test {
namespace {

using mojo::NormQuantizeArgs;

// Nearest returns the number of the output's type that is nearest to v, halves to even.
double Nearest(double v, bool float8) {
  if (!float8) return nearbyint(fmin(fmax(v, -128), 127));
  int low = 0, high = 126;  // the codes of the neighbors
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (Float8(middle) <= fabs(v) ? low : high) = middle;
  }
  const double below = fabs(v) - Float8(low), above = Float8(high) - fabs(v);
  return copysign(Float8(below < above || (below == above && low % 2 == 0) ? low : high), v);
}

double Decoded(uint8_t code, bool float8) { return float8 ? Float8(code) : static_cast<int8_t>(code); }

struct Case {
  ElementType x;
  bool after, float8, add, sum;
  bool in_place = false;  // the sum is written over x
};

// Run runs a case on rows of width numbers and compares. A result may be the other neighbor only if errors of float32
// can move v / Y_scale across the middle, or move the norm across the middle between two numbers of the type that it is
// rounded to.
void Run(const mojo::KernelTable& kernels, const Case& c, const std::vector<double>& values, size_t width,
         std::mt19937* rng) {
  const size_t n = values.size(), rows = n / width;
  const Buffer in(c.x, values), residual(c.x, Random(rng, n, 1));
  Buffer scale(mojo::kFloat32, Random(rng, width, 1));
  for (size_t i = 0; c.after && i < width; ++i) scale.Set(i, Round(c.x, scale.Get(i)));
  Buffer x(in), sum(c.x, n);
  std::vector<uint8_t> y(n);
  std::vector<float> y_scale(rows);
  NormQuantizeArgs args{};
  args.x = x.data();
  args.residual = c.add ? residual.data() : nullptr;
  args.scale = static_cast<const float*>(scale.data());
  args.y = y.data();
  args.y_scale = y_scale.data();
  args.sum = !c.sum ? nullptr : c.in_place ? x.data() : sum.data();
  args.width = width;
  args.epsilon = 1e-5f;
  args.least_scale = 1e-9f;
  args.float8 = c.float8;
  const mojo::NormQuantizeFn run = kernels.norm_quantize(c.x, c.after);
  run(args, 0, rows / 2);
  run(args, rows / 2, rows);
  const auto rounded = [&](double v) { return c.after ? Round(c.x, v) : v; };
  const double off = 16 * Epsilon(mojo::kFloat32);
  for (size_t row = 0; row < rows; ++row) {
    std::vector<double> v(width);
    double squares = 0;
    for (size_t i = 0; i < width; ++i) {
      const size_t at = row * width + i;
      v[i] = in.Get(at);
      if (c.add) v[i] = Round(c.x, Round(mojo::kFloat32, v[i] + residual.Get(at)));
      if (c.sum) {
        Check((c.in_place ? x : sum).Get(at) == v[i], "%s: NormQuantize %s width %zu: another sum", kernels.name,
              TypeName(c.x), width);
      }
      squares += v[i] * v[i];
    }
    const double inv = 1 / sqrt(squares / static_cast<double>(width) + args.epsilon);
    // The least and the greatest norm that float32 may compute, and their scales.
    std::vector<double> to[2] = {v, v};
    double scales[2];
    for (int k = 0; k < 2; ++k) {
      double most = 0;
      for (size_t i = 0; i < width; ++i) {
        to[k][i] = rounded(rounded(v[i] * inv * (k == 0 ? 1 - off : 1 + off)) * scale.Get(i));
        most = fmax(most, fabs(to[k][i]));
      }
      scales[k] = fmax(most / (c.float8 ? 448 : 127), args.least_scale);
    }
    const double got_scale = y_scale[row];
    Check(got_scale >= scales[0] * (1 - off) && got_scale <= scales[1] * (1 + off),
          "%s: NormQuantize %s after %d width %zu: scale %.9g, want %.9g to %.9g", kernels.name, TypeName(c.x), c.after,
          width, got_scale, scales[0], scales[1]);
    for (size_t i = 0; i < width; ++i) {
      const double got = Decoded(y[row * width + i], c.float8);
      const double a = Nearest(to[0][i] / scales[1] * (1 - off), c.float8);
      const double b = Nearest(to[1][i] / scales[0] * (1 + off), c.float8);
      Check(got >= fmin(a, b) && got <= fmax(a, b),
            "%s: NormQuantize %s after %d float8 %d width %zu at %zu: %g, want %g or %g", kernels.name, TypeName(c.x),
            c.after, c.float8, width, i, got, a, b);
    }
  }
}

// RunRow runs a row of ones in float32, whose norm is the scale.
std::vector<double> RunRow(const mojo::KernelTable& kernels, const std::vector<double>& scale, bool float8,
                           float* y_scale, double first = 1) {
  std::vector<double> ones(scale.size(), 1.0);
  ones[0] = first;
  const Buffer x(mojo::kFloat32, ones), of(mojo::kFloat32, scale);
  std::vector<uint8_t> y(scale.size());
  NormQuantizeArgs args{};
  args.x = x.data();
  args.scale = static_cast<const float*>(of.data());
  args.y = y.data();
  args.y_scale = y_scale;
  args.width = scale.size();
  args.least_scale = 1e-9f;
  args.float8 = float8;
  kernels.norm_quantize(mojo::kFloat32, false)(args, 0, 1);
  std::vector<double> out;
  for (const uint8_t code : y) out.push_back(Decoded(code, float8));
  return out;
}

// TestRoundings rounds every middle between two results, which becomes the even one, and the numbers beside it.
void TestRoundings(const mojo::KernelTable& kernels) {
  for (const bool float8 : {false, true}) {
    const float most = float8 ? 448 : 127;
    std::vector<double> v = {most, 0.0, -0.0};
    for (int code = 0; code < (float8 ? 126 : 127); ++code) {
      const auto low = static_cast<float>(float8 ? Float8(code) : code);
      const auto high = static_cast<float>(float8 ? Float8(code + 1) : code + 1);
      const float middle = (low + high) / 2;
      for (const float x : {low, nextafterf(middle, 0), middle, nextafterf(middle, INFINITY)}) {
        v.push_back(x), v.push_back(-x);
      }
    }
    float y_scale = 0;
    const std::vector<double> got = RunRow(kernels, v, float8, &y_scale);
    Check(y_scale == 1, "%s: NormQuantize: scale %g, want 1", kernels.name, static_cast<double>(y_scale));
    for (size_t i = 0; i < v.size(); ++i) {
      Check(got[i] == Nearest(v[i], float8), "%s: NormQuantize float8 %d: %.9g becomes %g", kernels.name, float8, v[i],
            got[i]);
    }
    // An infinity or a NaN in a row makes its scale not finite.
    for (const double bad : {static_cast<double>(INFINITY), static_cast<double>(-INFINITY), static_cast<double>(NAN)}) {
      for (const size_t at : {size_t{0}, size_t{5}, v.size() - 1}) {
        std::vector<double> scale = v;
        scale[at] = bad;
        RunRow(kernels, scale, float8, &y_scale);
        Check(!isfinite(y_scale), "%s: NormQuantize of %g has the scale %g", kernels.name, bad,
              static_cast<double>(y_scale));
      }
      RunRow(kernels, v, float8, &y_scale, bad);
      Check(!isfinite(y_scale), "%s: NormQuantize of a row with %g has the scale %g", kernels.name, bad,
            static_cast<double>(y_scale));
    }
    // Rows of zeros have the least scale, and stay zeros.
    for (const double z : RunRow(kernels, std::vector<double>(37, 0.0), float8, &y_scale)) {
      Check(z == 0 && y_scale == 1e-9f, "%s: NormQuantize of zeros: %g of %g", kernels.name, z,
            static_cast<double>(y_scale));
    }
  }
}

}  // namespace

MOJO_TEST(TestNormQuantize) {
  std::mt19937 rng(11);
  std::vector<size_t> widths = kSizes;
  widths.push_back(4096), widths.push_back(5000);  // kept between passes, and not
  for (const ElementType x : kTypes) {
    for (const bool after : {false, true}) {
      for (const bool float8 : {false, true}) {
        for (const size_t width : widths) {
          if (width == 0) continue;
          const std::vector<double> v = Random(&rng, 3 * width, 3);
          Run(kernels, {x, after, float8, false, false}, v, width, &rng);
          Run(kernels, {x, after, float8, true, true}, v, width, &rng);
          Run(kernels, {x, after, float8, true, true, true}, v, width, &rng);
          Run(kernels, {x, after, float8, true, false}, v, width, &rng);
          Run(kernels, {x, after, float8, false, true}, v, width, &rng);
        }
        if (x != mojo::kFloat16) Run(kernels, {x, after, float8, false, false}, Random(&rng, 1000, 1e18), 500, &rng);
        Run(kernels, {x, after, float8, false, false}, std::vector<double>(99, 0.0), 33, &rng);
        Run(kernels, {x, after, float8, false, false}, Random(&rng, 99, 1e-6), 33, &rng);
      }
    }
  }
  TestRoundings(kernels);
}

}  // namespace mojo_test
