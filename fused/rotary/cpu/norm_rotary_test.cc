// NormRotary against the loops of RMSNorm and RotaryEmbedding, one after the other: the same bits.
#include <math.h>
#include <string.h>

#include "tests/testing.h"

namespace mojo_test {
namespace {

// Form is one way to call the kernel.
struct Form {
  mojo::NormRotaryKey key;
  size_t before, after;  // channels that are not rotated
  bool wide_cos, wide_sin;
  bool shared;  // one row of cos and sin for all rows
  bool in_place;
};

// RunAndCompare runs rows of values of x. norm_test.cc compares the norm of a row with doubles.
void RunAndCompare(const mojo::KernelTable& kernels, size_t half, size_t count, const Form& form,
                   const std::vector<double>& values, std::mt19937* rng) {
  const mojo::NormRotaryKey& key = form.key;
  const size_t width = form.before + 2 * half + form.after;
  const size_t tables = form.shared ? 1 : count;
  const size_t cos_width = form.wide_cos ? 2 * half : half, sin_width = form.wide_sin ? 2 * half : half;
  const Buffer scale(mojo::kFloat32, Random(rng, width, 1));
  const Buffer cos(key.y, Random(rng, tables * cos_width, 1)), sin(key.y, Random(rng, tables * sin_width, 1));
  Buffer x(key.x, values), normed(key.y, count * width), want(key.y, count * width), got(key.y, count * width);

  mojo::NormArgs norm{};
  norm.x = x.data();
  norm.scale = static_cast<const float*>(scale.data());
  norm.y = normed.data();
  norm.width = width;
  norm.epsilon = 1e-5f;
  kernels.norm({key.x, key.y, key.scale_after_cast, false})(norm, 0, count);
  mojo::NormRotaryArgs args{};
  mojo::RotaryArgs& rotary = args.rotary;
  rotary.x = normed.data();
  rotary.cos = cos.data();
  rotary.sin = sin.data();
  rotary.y = want.data();
  rotary.count = count;
  rotary.width = width;
  rotary.first = form.before;
  rotary.half = half;
  rotary.cos_step = form.shared ? 0 : cos_width;
  rotary.sin_step = form.shared ? 0 : sin_width;
  rotary.cos_wide = form.wide_cos;
  rotary.sin_wide = form.wide_sin;
  kernels.rotary(key.y, key.from, key.to)(rotary);

  rotary.x = x.data();
  rotary.y = form.in_place ? x.data() : got.data();
  args.scale = static_cast<const float*>(scale.data());
  args.epsilon = norm.epsilon;
  kernels.norm_rotary(key)(args);
  const Buffer& out = form.in_place ? x : got;
  for (size_t i = 0; i < count * width; ++i) {
    Check(Near(out.Get(i), want.Get(i), 0),
          "%s: NormRotary x %s y %s after %d, layout %d to %d, half %zu, row %zu, channel %zu: %.9g, want %.9g",
          kernels.name, TypeName(key.x), TypeName(key.y), key.scale_after_cast, key.from, key.to, half, i / width,
          i % width, out.Get(i), want.Get(i));
  }
}

// Keys are all combinations of types that the op has, in the layouts of bits.
std::vector<mojo::NormRotaryKey> Keys(int bits) {
  const mojo::PairLayout from = bits & 1 ? mojo::kInterleaved : mojo::kHalves;
  const mojo::PairLayout to = bits & 2 ? mojo::kInterleaved : mojo::kHalves;
  std::vector<mojo::NormRotaryKey> keys;
  for (const ElementType x : kTypes) {
    for (const ElementType y : kTypes) {
      for (const bool after : {false, true}) {
        if (x == y || (x == mojo::kFloat32 && after)) keys.push_back({x, y, after, from, to});
      }
    }
  }
  return keys;
}

// Extremes: rows of the numbers at which float32 overflows, underflows or is NaN.
void TestExtremes(const mojo::KernelTable& kernels, const mojo::NormRotaryKey& key, std::mt19937* rng) {
  const size_t half = 19, width = 2 * half + 3;
  std::vector<double> x;
  size_t rows = 0;
  for (const double s :
       {0.0, 1e-30, 1e-45, 1e19, 3e19, 3e38, -3e38, 65504.0, 6e-8, double{INFINITY}, -double{INFINITY}, double{NAN}}) {
    for (size_t i = 0; i < width; ++i) x.push_back(i % 3 == 0 ? s : i % 3 == 1 ? -s : s / 2);
    for (size_t i = 0; i < width; ++i) x.push_back(i == 7 ? s : 0);
    rows += 2;
  }
  RunAndCompare(kernels, half, rows, {key, 1, 2, true, false, false, false}, x, rng);
}

}  // namespace

MOJO_TEST(TestNormRotary) {
  std::mt19937 rng(17);
  for (int bits = 0; bits < 64; ++bits) {
    for (const mojo::NormRotaryKey& key : Keys(bits)) {
      Form form{key, 0, 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0, (bits & 32) != 0 && key.x == key.y};
      const auto run = [&](size_t half, size_t count) {
        const size_t n = count * (form.before + 2 * half + form.after);
        RunAndCompare(kernels, half, count, form, Random(&rng, n, 3), &rng);
      };
      for (const size_t half : kSizes) {
        if (half > 130 || (half + static_cast<size_t>(bits)) % 2 != 0) continue;
        run(half, half % 4);
        form.before = half % 3 * 16 + 1;
        run(half, 2);
        form.before = 0, form.after = half % 5 + 15;
        run(half, 2);
        form.after = 0;
      }
      if (bits < 4) TestExtremes(kernels, key, &rng);
    }
  }
  for (const mojo::NormRotaryKey& key : Keys(1)) {
    const size_t half = mojo::kRotaryInPlace / 2 - 2;
    RunAndCompare(kernels, half, 2, {key, 3, 1, true, true, false, key.x == key.y}, Random(&rng, 2 * (2 * half + 4), 1),
                  &rng);
  }
  Check(kernels.norm_rotary({mojo::kFloat16, mojo::kFloat32, true, mojo::kHalves, mojo::kHalves}) == nullptr,
        "%s: a NormRotary for types that no op has", kernels.name);
}

}  // namespace mojo_test
