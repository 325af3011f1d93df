// Tests of the loops of Linear and Embedding, against sums in double over weights read one by one.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <memory>

#include "cpu/isa.h"
#include "tests/testing.h"

namespace mojo_test {
namespace {

using mojo::QuantizedWeights;

// Format is a way to store weights.
struct Format {
  mojo::Code code;
  mojo::ScaleKind scales;
  size_t block;
  float zero;
  bool minus;
};

constexpr Format kFormats[] = {
    {mojo::Code::kInt4, mojo::kHalfScales, 32, 8, false},       // q4_0
    {mojo::Code::kInt4, mojo::kFloatScales, 32, 0, true},       // q4_1
    {mojo::Code::kInt4, mojo::kTwofoldScales, 32, 0, true},     // q4_K
    {mojo::Code::kInt4, mojo::kTwofoldScales, 16, 0, true},     // q2_K
    {mojo::Code::kInt8, mojo::kHalfScales, 32, 128, false},     // q8_0
    {mojo::Code::kInt8, mojo::kHalfScales, 32, 112, true},      // q5_1
    {mojo::Code::kInt8, mojo::kTwofoldScales, 16, 128, false},  // q6_K
    {mojo::Code::kE2m1, mojo::kExponentScales, 32, 0, false},   // MXFP4
    {mojo::Code::kE4m3, mojo::kFloatScales, 128, 0, false},     // DeepSeek-V3
};

// TakesByte reports whether a code takes a byte.
bool TakesByte(mojo::Code code) { return code == mojo::Code::kInt8 || code == mojo::Code::kE4m3; }

typedef std::unique_ptr<char[]> Bytes;

// Weights are random, in memory of exactly their sizes.
struct Weights {
  Bytes codes, scale, minus, super_scale, super_minus;
  QuantizedWeights w;

  Weights(const Format& f, size_t n, size_t k, std::mt19937* rng)
      : w{nullptr, nullptr, nullptr, nullptr, nullptr, n, k, f.block, f.code, f.scales, f.zero, 0} {
    const size_t panels = (n + 15) / 16;
    const size_t size = f.scales == mojo::kFloatScales ? 4 : f.scales == mojo::kHalfScales ? 2 : 1;
    const auto bytes = [&](size_t count, int low, int high) {
      Bytes b(new char[count]);
      for (size_t i = 0; i < count; ++i) b[i] = static_cast<char>(low + static_cast<int>((*rng)() % (high - low + 1)));
      return b;
    };
    const auto numbers = [&](size_t count, ElementType type) {
      const std::vector<double> values = Random(rng, count, 0.5);
      const Buffer rounded(type, values);
      Bytes b(new char[count * (type == mojo::kFloat32 ? 4 : 2)]);
      memcpy(b.get(), rounded.data(), count * (type == mojo::kFloat32 ? 4 : 2));
      return b;
    };
    const size_t count = panels * (k / f.block) * (f.code == mojo::Code::kE4m3 ? 1 : 16);
    const auto scales = [&] {
      if (size > 1) return numbers(count, size == 4 ? mojo::kFloat32 : mojo::kFloat16);
      return f.scales == mojo::kTwofoldScales ? bytes(count, -63, 63) : bytes(count, 120, 130);
    };
    const size_t code_bytes = panels * (k / 32) * (TakesByte(f.code) ? 512 : 256);
    codes = bytes(code_bytes, 0, 255);
    for (size_t i = 0; f.code == mojo::Code::kE4m3 && i < code_bytes; ++i) {
      if ((codes[i] & 127) == 127) --codes[i];  // no NaN
    }
    scale = scales();
    if (f.minus) minus = scales();
    if (f.scales == mojo::kTwofoldScales) {
      super_scale = numbers(panels * (k / 256) * 16, mojo::kFloat16);
      if (f.minus) super_minus = numbers(panels * (k / 256) * 16, mojo::kFloat16);
    }
    w.codes = reinterpret_cast<const uint8_t*>(codes.get());
    w.scale = scale.get();
    w.minus = minus.get();
    w.super_scale = super_scale.get();
    w.super_minus = super_minus.get();
    w.shift = f.code == mojo::Code::kInt4 ? 8 - f.zero : f.code == mojo::Code::kInt8 ? 128 - f.zero : 0;
  }

  // Factor is d or m of an element.
  double Factor(const void* scale, const void* super, size_t row, size_t column) const {
    const size_t panel = row / 16, r = row % 16, at = (panel * (w.k / w.block) + column / w.block) * 16 + r;
    const auto half = [](const void* p, size_t i) {
      Buffer b(mojo::kFloat16, 1);
      memcpy(b.data(), static_cast<const char*>(p) + 2 * i, 2);
      return b.Get(0);
    };
    float wide;
    if (w.code == mojo::Code::kE4m3) {
      memcpy(&wide, static_cast<const char*>(scale) + 4 * (at / 16), 4);
      return wide;
    }
    switch (w.scales) {
      case mojo::kFloatScales: memcpy(&wide, static_cast<const char*>(scale) + 4 * at, 4); return wide;
      case mojo::kHalfScales: return half(scale, at);
      case mojo::kExponentScales: return PowerOfTwo(static_cast<const uint8_t*>(scale)[at] - 127);
      default: break;
    }
    return static_cast<const int8_t*>(scale)[at] * half(super, (panel * (w.k / 256) + column / 256) * 16 + r);
  }

  double Code(size_t row, size_t column) const {
    const uint8_t* block = w.codes + (row / 16 * (w.k / 32) + column / 32) * (TakesByte(w.code) ? 512 : 256);
    const size_t c = column % 32;
    if (w.code == mojo::Code::kE4m3) return Float8(block[c / 4 * 64 + row % 16 * 4 + c % 4]);
    if (w.code == mojo::Code::kInt8) return block[c / 4 * 64 + row % 16 * 4 + c % 4];
    const int byte = block[c % 16 / 4 * 64 + row % 16 * 4 + c % 4], code = c < 16 ? byte & 15 : byte >> 4;
    if (w.code == mojo::Code::kInt4) return code;
    const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code < 8 ? values[code] : -values[code - 8];
  }

  double Scale(size_t row, size_t column) const { return Factor(w.scale, w.super_scale, row, column); }
  double Minus(size_t row, size_t column) const {
    return w.minus == nullptr ? 0 : Factor(w.minus, w.super_minus, row, column);
  }
  double Value(size_t row, size_t column) const {
    return static_cast<float>(Scale(row, column) * (Code(row, column) - w.zero)) + Minus(row, column);
  }
};

// Rounded is a row of activations, each block of 32 rounded to integers of the block's step.
std::vector<double> Rounded(const float* x, size_t k, mojo::Activations kind) {
  std::vector<double> y(x, x + k);
  if (kind == mojo::Activations::kFloat) return y;
  const bool floats = kind == mojo::Activations::kFp8;
  const float limit = floats ? 448 : kind == mojo::Activations::kInt8 ? 127 : 32767;
  const size_t width = floats ? 128 : 32;
  for (size_t b = 0; b < k; b += width) {
    float most = 0;
    for (size_t i = b; i < b + width; ++i) most = fmaxf(most, fabsf(x[i]));
    const volatile float factor = most < 0x1p-100f ? 0 : limit / most, step = most / limit;
    for (size_t i = b; i < b + width; ++i) {
      const volatile float scaled = x[i] * factor;
      const int exponent = scaled == 0 ? 0 : ilogbf(scaled);
      const double unit = floats ? PowerOfTwo(std::max(exponent, -6) - 3) : 1;
      const volatile float whole = static_cast<float>(nearbyint(scaled / unit) * unit);
      y[i] = static_cast<double>(whole) * step;
    }
  }
  return y;
}

// KindsOf lists the activations that a code supports.
std::vector<mojo::Activations> KindsOf(mojo::Code code) {
  if (code == mojo::Code::kE4m3) return {mojo::Activations::kFloat, mojo::Activations::kFp8};
  return {mojo::Activations::kFloat, mojo::Activations::kInt16, mojo::Activations::kInt8};
}

// Activations are random; in some rows a block is all zeros, negligibly small, or has one great number.
std::vector<float> Activations(size_t rows, size_t k, std::mt19937* rng) {
  const std::vector<double> values = Random(rng, rows * k, 1);
  std::vector<float> x(values.begin(), values.end());
  for (size_t r = 0; r < rows; ++r) {
    float* block = x.data() + r * k + k - 32;
    if (r % 4 == 1) memset(block, 0, 32 * sizeof(float));
    for (size_t i = 0; r % 4 == 2 && i < 32; ++i) block[i] *= 1e-38f;
    if (r % 4 == 3) block[5] = 1e4f;
  }
  return x;
}

// LoopsBeside are the loops of Linear to test with a table: the loops of its name, and the loops without a table.
std::vector<const mojo::LinearFns*> LoopsBeside(const mojo::KernelTable& kernels) {
  std::vector<const mojo::LinearFns*> loops{mojo::BestLinear(kernels.name)};
  if (&kernels == mojo::BestKernels(nullptr) && mojo::BestLinear(nullptr) != loops[0]) {
    loops.push_back(mojo::BestLinear(nullptr));
  }
  return loops;
}

void TestProductsOf(const mojo::LinearFns& linear) {
  std::mt19937 rng(21);
  for (const Format& f : kFormats) {
    const size_t k = f.scales == mojo::kTwofoldScales ? 768 : f.block == 128 ? 640 : 544, n = 21;
    const Weights weights(f, n, k, &rng);
    for (const auto kind : KindsOf(f.code)) {
      const double middle = weights.w.zero + (kind == mojo::Activations::kFloat ? 0 : weights.w.shift);
      std::vector<double> centered(n * k), offset(n * k);  // multiply rounded and exact activations
      for (size_t i = 0; i < n * k; ++i) {
        const double scale = weights.Scale(i / k, i % k);
        centered[i] = scale * (weights.Code(i / k, i % k) - middle);
        offset[i] = weights.Minus(i / k, i % k) + scale * (middle - weights.w.zero);
      }
      for (const size_t rows : {1, 2, 3, 4, 5, 6, 7, 17, 131}) {
        const std::vector<float> x = Activations(rows, k, &rng);
        const std::vector<double> bias_values = Random(&rng, n, 10);
        const std::vector<float> bias(bias_values.begin(), bias_values.end());
        const ElementType type = kTypes[rows % 3];
        const Bytes tiles(new char[rows * linear.row_bytes(weights.w, kind)]);
        if (kind != mojo::Activations::kFloat) {
          const mojo::QuantizeArgs args{x.data(), mojo::kFloat32, kind, &weights.w, rows, tiles.get()};
          const size_t middle = rows / 16 * 8;
          linear.quantize(args, 0, middle);
          linear.quantize(args, middle, rows);
        }
        Buffer y(type, rows * n);
        for (size_t first = 0; first < rows; first += mojo::kLinearRows) {
          const size_t end = std::min(rows, first + mojo::kLinearRows);
          const void* from = kind == mojo::Activations::kFloat ? static_cast<const void*>(x.data()) : tiles.get();
          linear.multiply({&weights.w, kind, from, rows, first, end, 0, 2, bias.data(), y.data(), type});
        }
        for (size_t r = 0; r < rows; ++r) {
          const std::vector<double> rounded = Rounded(x.data() + r * k, k, kind);
          for (size_t i = 0; i < n; ++i) {
            double want = bias[i], size = fabs(want);
            for (size_t c = 0; c < k; ++c) {
              const double of_code = centered[i * k + c] * rounded[c], of_sum = offset[i * k + c] * x[r * k + c];
              want += of_code + of_sum;
              size += fabs(of_code) + fabs(of_sum);
            }
            Check(Near(y.Get(r * n + i), Round(type, want), Epsilon(type) * fabs(want) + 2e-6 * size),
                  "linear, codes %d, scales %d, activations %d, %zu rows: [%zu,%zu] is %g, want %g",
                  static_cast<int>(f.code), f.scales, static_cast<int>(kind), rows, r, i, y.Get(r * n + i), want);
          }
        }
      }
    }
    for (size_t row = 0; row < n; ++row) {
      std::vector<float> y(k);
      linear.decode(weights.w, row, y.data());
      for (size_t c = 0; c < k; ++c) {
        Check(y[c] == static_cast<float>(weights.Value(row, c)),
              "decode, codes %d, scales %d: [%zu,%zu] is %g, want %g", static_cast<int>(f.code), f.scales, row, c, y[c],
              weights.Value(row, c));
      }
    }
  }
}

void TestNoNumberInFloat8Of(const mojo::LinearFns& linear) {
  std::mt19937 rng(23);
  const size_t k = 256, n = 16;
  Weights weights(kFormats[sizeof(kFormats) / sizeof(kFormats[0]) - 1], n, k, &rng);
#if defined(__SSE2__)
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | 0x8040);
#endif
  for (size_t i = 0; i < n * k; ++i) weights.codes[i] = static_cast<char>(i % 8 | (i & 8) << 4);  // only subnormals
  weights.codes[(k / 4 - 1) * 64 + 4 * 3 + 2] = static_cast<char>(0xff);                          // row 3, column k - 2
  for (const size_t rows : {1, 3, 8, 40}) {
    std::vector<float> x = Activations(rows, k, &rng), y(rows * n), decoded(k);
    linear.multiply(
        {&weights.w, mojo::Activations::kFloat, x.data(), rows, 0, rows, 0, 1, nullptr, y.data(), mojo::kFloat32});
    for (size_t i = 0; i < rows * n; ++i) {
      if (i % n == 3) {
        Check(isnan(y[i]), "linear of e4m3: row %zu has %g where a code is no number", i / n, y[i]);
        continue;
      }
      double want = 0, size = 0;
      for (size_t c = 0; c < k; ++c) {
        want += x[i / n * k + c] * weights.Value(i % n, c);
        size += fabs(x[i / n * k + c] * weights.Value(i % n, c));
      }
      Check(fabs(y[i] - want) <= 2e-6 * size, "linear of small e4m3: [%zu,%zu] is %g, want %g", i / n, i % n, y[i],
            want);
    }
    linear.decode(weights.w, 3, decoded.data());
    Check(isnan(decoded[k - 2]) && decoded[k - 1] == static_cast<float>(weights.Value(3, k - 1)),
          "decode of e4m3: %g, %g", decoded[k - 2], decoded[k - 1]);
  }
#if defined(__SSE2__)
  __builtin_ia32_ldmxcsr(before);
#endif
}

void TestNotFiniteOf(const mojo::LinearFns& linear) {
  std::mt19937 rng(22);
  const size_t n = 16, rows = 3;
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const auto kind : {mojo::Activations::kInt16, mojo::Activations::kInt8, mojo::Activations::kFp8}) {
      const bool floats = kind == mojo::Activations::kFp8;
      const size_t k = floats ? 128 : 64;
      const Weights weights(kFormats[floats ? 8 : 0], n, k, &rng);
      std::vector<float> x = Activations(rows, k, &rng), y(rows * n);
      x[k + 40] = bad;
      const Bytes tiles(new char[rows * linear.row_bytes(weights.w, kind)]);
      linear.quantize({x.data(), mojo::kFloat32, kind, &weights.w, rows, tiles.get()}, 0, rows);
      linear.multiply({&weights.w, kind, tiles.get(), rows, 0, rows, 0, 1, nullptr, y.data(), mojo::kFloat32});
      for (size_t i = 0; i < rows * n; ++i) {
        Check(isfinite(y[i]) == (i / n != 1), "linear of %g: row %zu is %g", bad, i / n, y[i]);
      }
    }
  }
}

void TestGreatFloat8Of(const mojo::LinearFns& linear) {
  std::mt19937 rng(29);
  const size_t k = 256, n = 16;
  Weights weights(kFormats[sizeof(kFormats) / sizeof(kFormats[0]) - 1], n, k, &rng);
  for (const float scale : {1e-3f, 1e3f}) {
    for (size_t b = 0; b < k / 128; ++b) memcpy(weights.scale.get() + 4 * b, &scale, 4);
    for (const size_t rows : {1, 3, 8, 40}) {
      std::vector<float> x = Activations(rows, k, &rng), y(rows * n);
      for (float& v : x) v *= 1e30f / scale;
      linear.multiply(
          {&weights.w, mojo::Activations::kFloat, x.data(), rows, 0, rows, 0, 1, nullptr, y.data(), mojo::kFloat32});
      for (size_t i = 0; i < rows * n; ++i) {
        double want = 0, size = 0;
        for (size_t c = 0; c < k; ++c) {
          want += x[i / n * k + c] * weights.Value(i % n, c);
          size += fabs(x[i / n * k + c] * weights.Value(i % n, c));
        }
        Check(fabs(y[i] - want) <= 2e-6 * size, "linear of e4m3 times %g: [%zu,%zu] is %g, want %g", scale, i / n,
              i % n, y[i], want);
      }
    }
  }
}

}  // namespace

MOJO_TEST(TestProducts) {
  for (const mojo::LinearFns* linear : LoopsBeside(kernels)) TestProductsOf(*linear);
}

// TestNoNumberInFloat8: a NaN code makes its column NaN, in every row, and does not change the others; also if the
// processor flushes subnormals to 0.
MOJO_TEST(TestNoNumberInFloat8) {
  for (const mojo::LinearFns* linear : LoopsBeside(kernels)) TestNoNumberInFloat8Of(*linear);
}

// TestGreatFloat8: products of great numbers are as great as with the decoded weights, whose codes may be 448 times a
// small scale.
MOJO_TEST(TestGreatFloat8) {
  for (const mojo::LinearFns* linear : LoopsBeside(kernels)) TestGreatFloat8Of(*linear);
}

// TestNotFinite: a row with a NaN or infinity has only non-finite results, and the others do not change.
MOJO_TEST(TestNotFinite) {
  for (const mojo::LinearFns* linear : LoopsBeside(kernels)) TestNotFiniteOf(*linear);
}

}  // namespace mojo_test
