// Reads, writes and rounds values of every type.
#include "values.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace cann_emulation {
namespace {

float Widened(uint16_t bits, bool bfloat) {
  uint32_t wide;
  if (bfloat) {
    wide = uint32_t(bits) << 16;
  } else {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 0) {
      const float f = std::ldexp(float(fraction), -24);
      return sign ? -f : f;
    }
    wide = sign | (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23) | fraction << 13;
  }
  float f;
  memcpy(&f, &wide, 4);
  return f;
}

// The nearest value with so many bits of fraction and least as the smallest exponent; ties go to even.
double Nearest(double x, int fraction, int least, double greatest) {
  if (!std::isfinite(x) || x == 0) return x;
  int exponent = std::ilogb(x);
  if (exponent < least) exponent = least;
  const double unit = std::ldexp(1.0, exponent - fraction);
  const double y = std::nearbyint(x / unit) * unit;
  return std::fabs(y) > greatest ? std::copysign(INFINITY, x) : y;
}

uint16_t Narrowed(double x, bool bfloat) {
  const float f = static_cast<float>(Rounded(x, bfloat ? ACL_BF16 : ACL_FLOAT16));
  uint32_t wide;
  memcpy(&wide, &f, 4);
  if (bfloat) return std::isnan(f) ? 0x7fc0 : wide >> 16;
  const uint16_t sign = wide >> 16 & 0x8000;
  if (std::isnan(f)) return 0x7e00;
  if (std::isinf(f)) return sign | 0x7c00;
  const float magnitude = std::fabs(f);
  if (magnitude < 6.103515625e-5f) return sign | static_cast<uint16_t>(std::ldexp(magnitude, 24));  // subnormal
  return sign | static_cast<uint16_t>(((wide >> 23 & 255) - 112) << 10 | (wide >> 13 & 1023));
}

template <typename T>
double Get(const uint8_t* p) {
  T t;
  memcpy(&t, p, sizeof t);
  return static_cast<double>(t);
}

// An integer out of range becomes the nearest limit of the type; NaN becomes 0.
template <typename T>
void Put(uint8_t* p, double x) {
  using Limits = std::numeric_limits<T>;
  const T t = std::isnan(x)                             ? T(0)
              : x <= static_cast<double>(Limits::min()) ? Limits::min()
              : x >= static_cast<double>(Limits::max()) ? Limits::max()
                                                        : static_cast<T>(x);
  memcpy(p, &t, sizeof t);
}

double Read(const uint8_t* p, aclDataType type) {
  switch (type) {
    case ACL_FLOAT: return Get<float>(p);
    case ACL_DOUBLE: return Get<double>(p);
    case ACL_FLOAT16: return Widened(static_cast<uint16_t>(Get<uint16_t>(p)), false);
    case ACL_BF16: return Widened(static_cast<uint16_t>(Get<uint16_t>(p)), true);
    case ACL_INT8: return Get<int8_t>(p);
    case ACL_INT16: return Get<int16_t>(p);
    case ACL_INT32: return Get<int32_t>(p);
    case ACL_INT64: return Get<int64_t>(p);
    case ACL_UINT8:
    case ACL_BOOL: return Get<uint8_t>(p);
    case ACL_UINT16: return Get<uint16_t>(p);
    case ACL_UINT32: return Get<uint32_t>(p);
    case ACL_UINT64: return Get<uint64_t>(p);
    default: throw Failure{ACL_ERROR_INTERNAL_ERROR, Text("no values of type %d", type)};
  }
}

void Write(uint8_t* p, aclDataType type, double x) {
  const float f = static_cast<float>(x);
  const uint16_t half = type == ACL_FLOAT16 || type == ACL_BF16 ? Narrowed(x, type == ACL_BF16) : 0;
  switch (type) {
    case ACL_FLOAT: memcpy(p, &f, 4); break;
    case ACL_DOUBLE: memcpy(p, &x, 8); break;
    case ACL_FLOAT16:
    case ACL_BF16: memcpy(p, &half, 2); break;
    case ACL_INT8: Put<int8_t>(p, x); break;
    case ACL_INT16: Put<int16_t>(p, x); break;
    case ACL_INT32: Put<int32_t>(p, x); break;
    case ACL_INT64: Put<int64_t>(p, x); break;
    case ACL_UINT8: Put<uint8_t>(p, x); break;
    case ACL_BOOL: *p = x != 0; break;
    case ACL_UINT16: Put<uint16_t>(p, x); break;
    case ACL_UINT32: Put<uint32_t>(p, x); break;
    case ACL_UINT64: Put<uint64_t>(p, x); break;
    default: throw Failure{ACL_ERROR_INTERNAL_ERROR, Text("no values of type %d", type)};
  }
}

// Calls visit(address of the element in the opened memory) for each element in row-major order.
template <typename F>
void Each(const Tensor& t, F visit) {
  const int64_t count = t.Size();
  if (count == 0) return;
  int64_t last = 0;
  for (size_t i = 0; i < t.dims.size(); ++i) last += (t.dims[i] - 1) * t.strides[i];
  const size_t size = aclDataTypeSize(t.type);
  const auto* first = static_cast<const uint8_t*>(t.data) + t.offset * size;
  uint8_t* opened = Open(first, (last + 1) * size);
  std::vector<int64_t> at(t.dims.size());
  int64_t element = 0;
  for (int64_t n = 0; n < count; ++n) {
    visit(opened + element * size);
    for (size_t i = at.size(); i-- > 0;) {
      element += t.strides[i];
      if (++at[i] < t.dims[i]) break;
      element -= at[i] * t.strides[i];
      at[i] = 0;
    }
  }
}

}  // namespace

double ReadHost(const void* address, aclDataType type) { return Read(static_cast<const uint8_t*>(address), type); }

double Rounded(double x, aclDataType type) {
  switch (type) {
    case ACL_FLOAT: return static_cast<float>(x);
    case ACL_FLOAT16: return Nearest(x, 10, -14, 65504.0);
    case ACL_BF16: return Nearest(x, 7, -126, 3.3895313892515355e38);
    default: return x;
  }
}

int64_t Tensor::Size() const {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

std::vector<int64_t> RowMajor(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t n = 1;
  for (size_t i = dims.size(); i-- > 0; n *= dims[i]) strides[i] = n;
  return strides;
}

Tensor Contiguous(aclDataType type, std::vector<int64_t> dims, void* data) {
  Tensor t;
  t.type = type;
  t.strides = RowMajor(dims);
  t.dims = std::move(dims);
  t.data = data;
  return t;
}

bool IsContiguous(const Tensor& t) {
  const std::vector<int64_t> want = RowMajor(t.dims);
  for (size_t i = 0; i < t.dims.size(); ++i) {
    if (t.dims[i] != 1 && t.strides[i] != want[i]) return t.Size() == 0;
  }
  return true;
}

std::string Dims(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

const char* TypeName(aclDataType type) {
  switch (type) {
    case ACL_FLOAT: return "FLOAT";
    case ACL_FLOAT16: return "FLOAT16";
    case ACL_INT8: return "INT8";
    case ACL_INT32: return "INT32";
    case ACL_UINT8: return "UINT8";
    case ACL_INT16: return "INT16";
    case ACL_UINT16: return "UINT16";
    case ACL_UINT32: return "UINT32";
    case ACL_INT64: return "INT64";
    case ACL_UINT64: return "UINT64";
    case ACL_DOUBLE: return "DOUBLE";
    case ACL_BOOL: return "BOOL";
    case ACL_BF16: return "BFLOAT16";
    default: return "an unknown type";
  }
}

bool IsFloating(aclDataType type) {
  return type == ACL_FLOAT || type == ACL_FLOAT16 || type == ACL_BF16 || type == ACL_DOUBLE;
}

std::vector<double> Load(const Tensor& tensor) {
  std::vector<double> values;
  values.reserve(tensor.Size());
  Each(tensor, [&](const uint8_t* p) { values.push_back(Read(p, tensor.type)); });
  return values;
}

void Store(const Tensor& tensor, const std::vector<double>& values) {
  size_t i = 0;
  Each(tensor, [&](uint8_t* p) { Write(p, tensor.type, values[i++]); });
}

bool Broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b, std::vector<int64_t>* out) {
  const size_t rank = a.size() > b.size() ? a.size() : b.size();
  out->assign(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return false;
    (*out)[rank - 1 - i] = x == 1 ? y : x;
  }
  return true;
}

Tensor Expanded(const Tensor& tensor, const std::vector<int64_t>& dims) {
  Tensor t = tensor;
  t.dims = dims;
  t.strides.assign(dims.size(), 0);
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    const size_t to = dims.size() - tensor.dims.size() + i;
    t.strides[to] = tensor.dims[i] == 1 && dims[to] != 1 ? 0 : tensor.strides[i];
  }
  return t;
}

Tensor Permuted(const Tensor& tensor, const std::vector<int64_t>& axes) {
  Tensor t = tensor;
  for (size_t i = 0; i < axes.size(); ++i) {
    t.dims[i] = tensor.dims[axes[i]];
    t.strides[i] = tensor.strides[axes[i]];
  }
  return t;
}

}  // namespace cann_emulation

extern "C" size_t aclDataTypeSize(aclDataType dataType) {
  switch (dataType) {
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL: return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16: return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32: return 4;
    case ACL_DOUBLE:
    case ACL_INT64:
    case ACL_UINT64: return 8;
    default: return 0;
  }
}
