// Helpers that the tests of the inner loops share: element types by the definition of IEEE 754, exact-size buffers (so
// that the address sanitizer sees an element too far), and failure counting.
#pragma once

#include <stdint.h>
#include <string.h>

#include <random>
#include <vector>

#include "cpu/simd/kernels.h"

namespace mojo_test {

using mojo::ElementType;

// Round is v rounded to the type, to nearest even, as a double.
double Round(ElementType type, double v);

// PowerOfTwo is 2^exponent, from -1022 to 1023. ldexp took a third of the tests' time.
inline double PowerOfTwo(int exponent) {
  const uint64_t bits = static_cast<uint64_t>(exponent + 1023) << 52;
  double power;
  memcpy(&power, &bits, sizeof(power));
  return power;
}

// Float8 is the number of a code of float8e4m3fn.
double Float8(int code);

// Epsilon is the distance from 1 to the next number of the type.
inline double Epsilon(ElementType type) {
  return type == mojo::kFloat32 ? 0x1p-23 : type == mojo::kFloat16 ? 0x1p-10 : 0x1p-7;
}

// TypeName is "float32", "float16" or "bfloat16".
const char* TypeName(ElementType type);

// Buffer is a tensor of one type in memory of exactly its size.
class Buffer {
 public:
  Buffer(ElementType type, size_t n);
  Buffer(ElementType type, const std::vector<double>& values);
  Buffer(const Buffer& other);
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  size_t size() const { return size_; }
  ElementType type() const { return type_; }
  void* data() { return data_; }
  const void* data() const { return data_; }
  // Get decodes and Set encodes (rounding) element i. Get is here because the inner loops of references call it.
  double Get(size_t i) const {
    return numbers_ == nullptr ? static_cast<double>(static_cast<const float*>(data_)[i])
                               : numbers_[static_cast<const uint16_t*>(data_)[i]];
  }
  void Set(size_t i, double v);

 private:
  ElementType type_;
  size_t size_;
  void* data_;
  const double* numbers_;  // of all bit patterns of a 16-bit type
};

// Random returns n numbers: normally distributed times scale.
std::vector<double> Random(std::mt19937* rng, size_t n, double scale);

// Check counts a failure, with a printf message, unless ok. Only the first failures are printed.
void Check(bool ok, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Near reports whether got is expected: both NaN, the same infinity, or |got - want| <= tolerance.
bool Near(double got, double want, double tolerance);

// Exactness counts results of a narrow type that differ from the reference at all. A rounding that is
// missing or of another kind changes many; float32's own error, near a tie, changes few.
struct Exactness {
  long total = 0, different = 0;
  void Count(double got, double want) {
    ++total;
    different += got != want && !(got != got && want != want);
  }
  bool Good() const { return different * 50 <= total; }
};

extern int failures;
extern long checks;

// All types and, for loops over sizes, lengths around every vector width.
extern const ElementType kTypes[3];
extern const std::vector<size_t> kSizes;

// MOJO_TEST(TestNorms) { ... } is a function of the table kernels that kernel_test runs on every instruction set.
struct Test {
  explicit Test(void (*run)(const mojo::KernelTable& kernels));
};
#define MOJO_TEST(name)                               \
  static void name(const mojo::KernelTable& kernels); \
  static const Test the_##name(name);                 \
  static void name(const mojo::KernelTable& kernels)

}  // namespace mojo_test
