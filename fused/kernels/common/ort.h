// The part of onnxruntime's C API that the kernels use, probed once at load time.
//
// Nothing here links against libonnxruntime: every call goes through the OrtApi table that
// onnxruntime hands to RegisterCustomOps. A table of an older runtime is shorter, so each function
// that came after the oldest supported version is guarded by the version that was found.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "onnxruntime_c_api.h"

// MinGW's printf is C99's, though its compiler takes it for Microsoft's old one.
#ifdef __MINGW32__
#define MOJO_PRINTF gnu_printf
#else
#define MOJO_PRINTF printf
#endif

namespace mojo {

// More dimensions than any model has; a tensor of a higher rank is an error, not a crash.
constexpr size_t kMaxRank = 16;

// The oldest supported API: the first whose custom ops report errors.
constexpr uint32_t kOldestVersion = 16;

// Api is the OrtApi table and the version up to which it may be used.
struct Api {
  const OrtApi* ort = nullptr;
  uint32_t version = 0;  // the version the table was asked for, at most ORT_API_VERSION

  bool has_shape_reference() const { return version >= 24; }
  bool has_parallel_for() const { return version >= 17; }
  bool has_scratch_buffer() const { return version >= 18; }
};

// ProbeApi asks for the newest table that both this library and the runtime know. Its ort is null if the runtime has no
// such table.
Api ProbeApi(const OrtApiBase* base);

// TheApi is the table found by the first RegisterCustomOps of this process.
const Api& TheApi();
void SetTheApi(const Api& api);

// Errorf makes an OrtStatus (ORT_INVALID_ARGUMENT) from a printf format. Never null.
OrtStatus* Errorf(const Api& api, const char* format, ...) __attribute__((format(MOJO_PRINTF, 2, 3)));

// OutOfMemory is the status for a failed allocation on the host.
OrtStatus* OutOfMemory(const Api& api);

// Shape is a tensor's dimensions. dims points into the tensor or into own.
struct Shape {
  const int64_t* dims = nullptr;
  size_t rank = 0;
  int64_t own[kMaxRank];

  Shape() {}
  Shape(const Shape&) = delete;
  Shape& operator=(const Shape&) = delete;

  // Count is the number of elements (1 for rank 0), Product the product of the dims from begin to end - 1. Both
  // saturate on overflow.
  size_t Count() const { return Product(0, rank); }
  size_t Product(size_t begin, size_t end) const;
  // Possible reports whether a tensor can have this shape: no dim is negative, and all of it can be
  // addressed.
  bool Possible() const;
};

// ShapeText is a shape as text for messages, "[2,3]".
struct ShapeText {
  char text[160];
  ShapeText(const int64_t* dims, size_t rank);
  explicit ShapeText(const Shape& shape) : ShapeText(shape.dims, shape.rank) {}
};

// ReadShape reads a tensor's shape, without an allocation if the runtime can (API 24). It returns no dims if the rank
// is above kMaxRank.
OrtStatus* ReadShape(const Api& api, const OrtValue* value, Shape* shape);

// ParallelFor calls fn(state, 0..tasks-1) on the session's threads, or in place for one task.
OrtStatus* ParallelFor(const Api& api, OrtKernelContext* context, void (*fn)(void*, size_t), size_t tasks, void* state);

}  // namespace mojo
