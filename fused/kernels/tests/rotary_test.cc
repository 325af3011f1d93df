// RotaryEmbedding against a naive reference; every result must be exact.
#include <math.h>

#include "tests/testing.h"

namespace mojo_test {
namespace {

void RunAndCompare(const mojo::KernelTable& kernels, ElementType type, size_t half, size_t count,
                   bool wide_cos, bool wide_sin, bool shared, bool in_place, std::mt19937* rng) {
  const size_t width = 2 * half;
  const size_t cos_width = wide_cos ? width : half, sin_width = wide_sin ? width : half;
  const size_t tables = shared ? 1 : count;
  const Buffer x(type, Random(rng, count * width, 2));
  const Buffer cos(type, Random(rng, tables * cos_width, 1));
  const Buffer sin(type, Random(rng, tables * sin_width, 1));
  Buffer first(x), y(type, count * width);
  mojo::RotaryArgs args{};
  args.x = first.data();
  args.cos = cos.data();
  args.sin = sin.data();
  args.y = in_place ? first.data() : y.data();
  args.count = count;
  args.half = half;
  args.cos_step = shared ? 0 : cos_width;
  args.sin_step = shared ? 0 : sin_width;
  args.cos_high = wide_cos ? half : 0;
  args.sin_high = wide_sin ? half : 0;
  kernels.rotary(type)(args);
  const Buffer& out = in_place ? first : y;
  const auto product = [&](double a, double b) {
    return Round(type, Round(mojo::kFloat32, a * b));
  };
  for (size_t row = 0; row < count; ++row) {
    for (size_t i = 0; i < half; ++i) {
      const double low = x.Get(row * width + i), high = x.Get(row * width + half + i);
      const size_t c = row * args.cos_step + i, s = row * args.sin_step + i;
      const double want_low = product(low, cos.Get(c)) - product(high, sin.Get(s));
      const double want_high =
          product(high, cos.Get(c + args.cos_high)) + product(low, sin.Get(s + args.sin_high));
      const double got_low = out.Get(row * width + i), got_high = out.Get(row * width + half + i);
      const auto rounded = [&](double v) { return Round(type, Round(mojo::kFloat32, v)); };
      Check(Near(got_low, rounded(want_low), 0) && Near(got_high, rounded(want_high), 0),
            "%s: RotaryEmbedding %s half %zu row %zu at %zu: %.9g %.9g, want %.9g %.9g",
            kernels.name, TypeName(type), half, row, i, got_low, got_high, rounded(want_low),
            rounded(want_high));
    }
  }
}

}  // namespace

void TestRotary(const mojo::KernelTable& kernels) {
  std::mt19937 rng(13);
  for (const ElementType type : kTypes) {
    for (const size_t half : kSizes) {
      if (half > 130) continue;
      for (const size_t count : {size_t{0}, size_t{1}, size_t{3}}) {
        for (int bits = 0; bits < 16; ++bits) {
          RunAndCompare(kernels, type, half, count, bits & 1, bits & 2, bits & 4, bits & 8, &rng);
        }
      }
    }
  }
}

}  // namespace mojo_test
