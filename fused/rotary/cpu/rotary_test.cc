// RotaryEmbedding against a naive reference; every result must be exact.
#include <math.h>

#include "tests/testing.h"

namespace mojo_test {
namespace {

// Form is one way to call the kernel.
struct Form {
  mojo::PairLayout from, to;
  size_t before, after;  // channels that are copied
  bool wide_cos, wide_sin;
  bool shared;  // one row of cos and sin for all rows
  bool in_place;
};

// Channel is the index of the first (0) or second (1) channel of pair i.
size_t Channel(mojo::PairLayout layout, size_t half, size_t i, size_t which) {
  return layout == mojo::kHalves ? i + which * half : 2 * i + which;
}

void RunAndCompare(const mojo::KernelTable& kernels, ElementType type, size_t half, size_t count, const Form& form,
                   std::mt19937* rng) {
  const size_t width = form.before + 2 * half + form.after;
  const size_t cos_width = form.wide_cos ? 2 * half : half;
  const size_t sin_width = form.wide_sin ? 2 * half : half;
  const size_t tables = form.shared ? 1 : count;
  const Buffer x(type, Random(rng, count * width, 2));
  const Buffer cos(type, Random(rng, tables * cos_width, 1));
  const Buffer sin(type, Random(rng, tables * sin_width, 1));
  Buffer first(x), y(type, count * width);
  mojo::RotaryArgs args{};
  args.x = first.data();
  args.cos = cos.data();
  args.sin = sin.data();
  args.y = form.in_place ? first.data() : y.data();
  args.count = count;
  args.width = width;
  args.first = form.before;
  args.half = half;
  args.cos_step = form.shared ? 0 : cos_width;
  args.sin_step = form.shared ? 0 : sin_width;
  args.cos_wide = form.wide_cos;
  args.sin_wide = form.wide_sin;
  kernels.rotary(type, form.from, form.to)(args);
  const Buffer& out = form.in_place ? first : y;
  const auto rounded = [&](double v) { return Round(type, Round(mojo::kFloat32, v)); };
  for (size_t row = 0; row < count; ++row) {
    const auto check = [&](size_t channel, double want) {
      const double got = out.Get(row * width + channel);
      Check(Near(got, want, 0),
            "%s: RotaryEmbedding %s, layout %d to %d, half %zu, row %zu, channel %zu: %.9g, want %.9g", kernels.name,
            TypeName(type), form.from, form.to, half, row, channel, got, want);
    };
    for (size_t i = 0; i < half; ++i) {
      const size_t start = row * width + form.before;
      const double a = x.Get(start + Channel(form.from, half, i, 0));
      const double b = x.Get(start + Channel(form.from, half, i, 1));
      const size_t p = Channel(form.to, half, i, 0), q = Channel(form.to, half, i, 1);
      const auto cosine = [&](size_t at) { return cos.Get(row * args.cos_step + (form.wide_cos ? at : i)); };
      const auto sine = [&](size_t at) { return sin.Get(row * args.sin_step + (form.wide_sin ? at : i)); };
      check(form.before + p, rounded(rounded(a * cosine(p)) - rounded(b * sine(p))));
      check(form.before + q, rounded(rounded(b * cosine(q)) + rounded(a * sine(q))));
    }
    for (size_t i = 0; i < width; ++i) {
      if (i < form.before || i >= form.before + 2 * half) check(i, x.Get(row * width + i));
    }
  }
}

}  // namespace

MOJO_TEST(TestRotary) {
  std::mt19937 rng(13);
  for (const ElementType type : kTypes) {
    for (const size_t half : kSizes) {
      if (half > 130) continue;
      for (int bits = 0; bits < 64; ++bits) {
        Form form{};
        form.from = bits & 1 ? mojo::kInterleaved : mojo::kHalves;
        form.to = bits & 2 ? mojo::kInterleaved : mojo::kHalves;
        form.wide_cos = bits & 4;
        form.wide_sin = bits & 8;
        form.shared = bits & 16;
        form.in_place = bits & 32;
        for (const size_t count : {size_t{0}, size_t{1}, size_t{3}}) {
          if (count == 3 || bits == 0) RunAndCompare(kernels, type, half, count, form, &rng);
        }
        for (const size_t rest : {size_t{1}, size_t{16}, size_t{75}}) {
          form.before = bits % 5 == 0 ? 0 : rest;
          form.after = bits % 5 == 1 ? 0 : 76 - rest;
          RunAndCompare(kernels, type, half, 2, form, &rng);
        }
      }
    }
    Form most{mojo::kInterleaved, mojo::kHalves, 3, 1, true, true, false, true};
    RunAndCompare(kernels, type, mojo::kRotaryInPlace / 2, 2, most, &rng);
  }
}

}  // namespace mojo_test
