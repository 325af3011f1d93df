// Helpers that the parts of the runtime test share.
#pragma once

#include <string>
#include <vector>

#include "tests/forms.h"
#include "tests/stand_in.h"

namespace mojo_test {

constexpr auto kF32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
constexpr auto kF16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
constexpr auto kBF16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16;
constexpr auto kI64 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
constexpr auto kI8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
constexpr auto kU8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;

// Check counts a failure of what, with details, unless ok.
void Check(bool ok, const std::string& what, const std::string& detail);

// Tensor makes a value at an address that is aligned to its elements only. An invalid or too large shape gets little
// memory: the kernel must not look at it. A shape without elements gets no memory. Integers are 0 and 1, except bytes,
// which are up to 100.
OrtValue Tensor(ONNXTensorElementDataType type, const Dims& shape, float seed);

// Result is the bytes of the outputs, or an error.
struct Result {
  std::string bytes, error;
  bool operator==(const Result& other) const { return bytes == other.bytes && error == other.error; }
};

// Way is how a result is asked for again. The thread sanitizer looks only for races.
struct Way {
  int threads;
  bool in_place;
};
#ifdef __SANITIZE_THREAD__
const std::vector<Way> kWays{{4, false}};
#else
const std::vector<Way> kWays{{1, false}, {1, true}, {4, false}, {4, true}};
#endif

// TestForms runs every op in every form and combination of types that the catalogue has; thorough, in all ways.
void TestForms(const OrtApi& api, bool thorough);

// TestAttributes omits each attribute that an op declares: its kernel must ask for it by name.
void TestAttributes(const OrtApi& api);

// TestEmpty sets a dimension of each input of every form, one at a time, to zero and passes no memory. Weights in
// blocks must have the shape that the attributes say: a product of dimensions that is right only because of a zero is
// refused.
void TestEmpty(const OrtApi& api);

}  // namespace mojo_test
