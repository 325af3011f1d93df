// Test program of the inner loops: every instruction set that this machine has, against naive
// references in double. Prints a line per instruction set; exits with 1 on a failure.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/isa.h"
#include "tests/testing.h"

namespace mojo_test {

int failures = 0;
long checks = 0;
const ElementType kTypes[3] = {mojo::kFloat32, mojo::kFloat16, mojo::kBFloat16};
const std::vector<size_t> kSizes = {1,  2,  3,  4,  5,  7,  8,  9,   15,  16,  17,  31, 32,
                                    33, 47, 63, 64, 65, 70, 96, 127, 128, 129, 200, 515};

namespace {

// Tests are the functions to run; made before the first is added.
std::vector<void (*)(const mojo::KernelTable&)>& Tests() {
  static std::vector<void (*)(const mojo::KernelTable&)> tests;
  return tests;
}

// Format is a binary floating-point format: bits of precision and the exponents of its smallest
// normal and largest numbers.
struct Format {
  int precision;
  int min_exponent;
  int max_exponent;
};

inline Format FormatOf(ElementType type) {
  if (type == mojo::kFloat16) return {11, -14, 15};
  if (type == mojo::kBFloat16) return {8, -126, 127};
  return {24, -126, 127};
}

// Decode returns the number of a bit pattern of a 16-bit type.
double Decode(const Format& format, unsigned bits) {
  const int mantissa_bits = format.precision - 1;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int biased = (bits & 0x7fff) >> mantissa_bits;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (biased == (0x7fff >> mantissa_bits)) return mantissa != 0 ? NAN : sign * INFINITY;
  if (biased == 0) return sign * mantissa * PowerOfTwo(format.min_exponent - mantissa_bits);
  return sign * (mantissa + (1 << mantissa_bits)) * PowerOfTwo(biased - 1 + format.min_exponent - mantissa_bits);
}

// Numbers returns the numbers of all bit patterns of a 16-bit type. To decode each element took half of the time.
std::vector<double> Numbers(ElementType type) {
  std::vector<double> numbers(65536);
  for (unsigned i = 0; i < numbers.size(); ++i) numbers[i] = Decode(FormatOf(type), i);
  return numbers;
}

// NumbersOf is Numbers, made once.
const double* NumbersOf(ElementType type) {
  static const std::vector<double> float16 = Numbers(mojo::kFloat16), bfloat16 = Numbers(mojo::kBFloat16);
  return (type == mojo::kFloat16 ? float16 : bfloat16).data();
}

}  // namespace

Test::Test(void (*run)(const mojo::KernelTable& kernels)) { Tests().push_back(run); }

double Round(ElementType type, double v) {
  if (type == mojo::kFloat32) return static_cast<float>(v);  // as the processor does: a third of the tests' time
  if (v == 0 || !isfinite(v)) return v;
  const Format format = FormatOf(type);
  int exponent;
  frexp(v, &exponent);
  exponent -= 1;
  if (exponent < format.min_exponent) exponent = format.min_exponent;
  const double unit = PowerOfTwo(exponent - format.precision + 1);
  const double rounded = nearbyint(v / unit) * unit;
  if (fabs(rounded) >= PowerOfTwo(format.max_exponent + 1)) return copysign(INFINITY, v);
  return rounded;
}

double Float8(int code) {
  static const std::vector<double> numbers = [] {
    std::vector<double> list;
    for (int i = 0; i < 256; ++i) {
      const int exponent = i >> 3 & 15, mantissa = i & 7;
      const double v = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
      list.push_back((i & 127) == 127 ? NAN : i < 128 ? v : -v);
    }
    return list;
  }();
  return numbers[code];
}

const char* TypeName(ElementType type) {
  if (type == mojo::kFloat16) return "float16";
  if (type == mojo::kBFloat16) return "bfloat16";
  return "float32";
}

Buffer::Buffer(ElementType type, size_t n)
    : type_(type),
      size_(n),
      data_(malloc(n * (type == mojo::kFloat32 ? 4 : 2))),
      numbers_(type == mojo::kFloat32 ? nullptr : NumbersOf(type)) {
  memset(data_, 0x5a, n * (type == mojo::kFloat32 ? 4 : 2));
}

Buffer::Buffer(ElementType type, const std::vector<double>& values) : Buffer(type, values.size()) {
  for (size_t i = 0; i < values.size(); ++i) Set(i, values[i]);
}

Buffer::Buffer(const Buffer& other) : Buffer(other.type_, other.size_) {
  memcpy(data_, other.data_, size_ * (type_ == mojo::kFloat32 ? 4 : 2));
}

Buffer::~Buffer() { free(data_); }

void Buffer::Set(size_t i, double v) {
  v = Round(type_, v);
  if (type_ == mojo::kFloat32) {
    static_cast<float*>(data_)[i] = static_cast<float>(v);
    return;
  }
  const Format format = FormatOf(type_);
  const int mantissa_bits = format.precision - 1;
  const unsigned sign = signbit(v) ? 0x8000 : 0;
  const unsigned infinity = (0x7fffu >> mantissa_bits) << mantissa_bits;
  unsigned bits;
  if (isnan(v)) {
    bits = infinity | 1u << (mantissa_bits - 1);
  } else if (isinf(v)) {
    bits = infinity;
  } else {
    int exponent = format.min_exponent;
    if (v != 0) {
      frexp(v, &exponent);
      exponent -= 1;
      if (exponent < format.min_exponent) exponent = format.min_exponent;
    }
    const unsigned units = static_cast<unsigned>(fabs(v) * PowerOfTwo(mantissa_bits - exponent));
    // A subnormal has no hidden bit; a normal one's carries into the exponent field.
    bits = units + (static_cast<unsigned>(exponent - format.min_exponent) << mantissa_bits);
  }
  static_cast<uint16_t*>(data_)[i] = static_cast<uint16_t>(sign | bits);
}

std::vector<double> Random(std::mt19937* rng, size_t n, double scale) {
  std::normal_distribution<double> normal;
  std::vector<double> values(n);
  for (double& v : values) v = normal(*rng) * scale;
  return values;
}

void Check(bool ok, const char* format, ...) {
  ++checks;
  if (ok) return;
  if (++failures > 30) return;
  va_list args;
  va_start(args, format);
  fprintf(stderr, "FAIL ");
  vfprintf(stderr, format, args);
  fprintf(stderr, "\n");
  va_end(args);
}

bool Near(double got, double want, double tolerance) {
  if (isnan(want)) return isnan(got);
  if (isinf(want) || isinf(got)) return got == want;
  return fabs(got - want) <= tolerance;
}

// TestConversions widens every 16 bit pattern.
MOJO_TEST(TestConversions) {
  for (const ElementType type : {mojo::kFloat16, mojo::kBFloat16}) {
    Buffer all(type, 65536);
    for (int i = 0; i < 65536; ++i) static_cast<uint16_t*>(all.data())[i] = static_cast<uint16_t>(i);
    Buffer wide(mojo::kFloat32, all.size());
    kernels.to_float32(type, all.data(), static_cast<float*>(wide.data()), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const double want = all.Get(i), got = wide.Get(i);
      Check(Near(got, want, 0) && (isnan(want) || signbit(got) == signbit(want)),
            "%s: %s 0x%04zx widened to %g, want %g", kernels.name, TypeName(type), i, got, want);
    }
  }
}

// RunTests runs all of them.
void RunTests(const mojo::KernelTable& kernels) {
  for (const auto run : Tests()) run(kernels);
}

}  // namespace mojo_test

int main() {
  std::vector<const mojo::KernelTable*> tables;
  for (const char* cap : {"portable", "avx2", "avx512"}) {
    const mojo::KernelTable* table = mojo::BestKernels(cap);
    if (!tables.empty() && tables.back() == table) continue;  // this machine lacks it
    tables.push_back(table);
  }
  mojo_test::Check(mojo::BestKernels("sse9") == nullptr, "an unknown cap was taken");
  for (const mojo::KernelTable* table : tables) {
    const long before = mojo_test::checks;
    mojo_test::RunTests(*table);
#if defined(MOJO_EMULATE_AVX512)
    const char* how = table == &mojo::kAVX512Kernels ? ", emulated" : "";
#else
    const char* how = "";
#endif
    printf("%-9s %ld checks%s\n", table->name, mojo_test::checks - before, how);
  }
  printf("%d failures\n", mojo_test::failures);
  return mojo_test::failures == 0 ? 0 : 1;
}
