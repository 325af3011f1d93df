// Tensors as the emulated device reads and writes them: strided, of any type, as double in between.
#pragma once

#include <vector>

#include "core.h"

namespace cann_emulation {

// A tensor on the device. data is a device address.
struct Tensor {
  aclDataType type = ACL_DT_UNDEFINED;
  std::vector<int64_t> dims, strides;  // strides and offset in elements
  int64_t offset = 0;
  void* data = nullptr;

  explicit operator bool() const { return type != ACL_DT_UNDEFINED; }
  int64_t Size() const;  // elements
  int64_t Dim(int64_t axis) const { return dims[axis < 0 ? axis + dims.size() : axis]; }
};

std::vector<int64_t> RowMajor(const std::vector<int64_t>& dims);
Tensor Contiguous(aclDataType type, std::vector<int64_t> dims, void* data);
bool IsContiguous(const Tensor& tensor);
std::string Dims(const std::vector<int64_t>& dims);  // as [2, 3]
const char* TypeName(aclDataType type);
bool IsFloating(aclDataType type);

// The elements in row-major order. Integers of more than 53 bits are not exact.
std::vector<double> Load(const Tensor& tensor);
// Rounds to the tensor's type, to nearest even; floating-point values are truncated to integers.
void Store(const Tensor& tensor, const std::vector<double>& values);
// One value of the host's memory.
double ReadHost(const void* address, aclDataType type);
// x rounded to a floating-point type.
double Rounded(double x, aclDataType type);

// The dims that two tensors broadcast to; false if they do not.
bool Broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b, std::vector<int64_t>* out);
// The tensor read as if it had these dims, which it broadcasts to.
Tensor Expanded(const Tensor& tensor, const std::vector<int64_t>& dims);
// Its axes in another order.
Tensor Permuted(const Tensor& tensor, const std::vector<int64_t>& axes);

}  // namespace cann_emulation
