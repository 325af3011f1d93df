#include "common/ort.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace mojo {
namespace {

Api the_api;

}  // namespace

const Api& TheApi() { return the_api; }
void SetTheApi(const Api& api) { the_api = api; }

Api ProbeApi(const OrtApiBase* base) {
  Api api;
  if (base == nullptr) return api;
  // onnxruntime 1.N serves the API versions up to N. Asking for more prints a warning each time,
  // so the version string narrows the search first.
  uint32_t version = ORT_API_VERSION;
  const char* text = base->GetVersionString();
  if (text != nullptr && strncmp(text, "1.", 2) == 0) {
    const int minor = atoi(text + 2);
    if (minor > 0 && static_cast<uint32_t>(minor) < version) version = static_cast<uint32_t>(minor);
  }
  for (; version > 0 && api.ort == nullptr; --version) {
    api.ort = base->GetApi(version);
    api.version = version;
  }
  return api;
}

OrtStatus* Errorf(const Api& api, const char* format, ...) {
  char message[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof(message), format, args);
  va_end(args);
  return api.ort->CreateStatus(ORT_INVALID_ARGUMENT, message);
}

OrtStatus* OutOfMemory(const Api& api) { return api.ort->CreateStatus(ORT_FAIL, "mojo: out of memory"); }

size_t Shape::Product(size_t begin, size_t end) const {
  size_t count = 1;
  bool empty = false;
  for (size_t i = begin; i < end; ++i) {
    const auto dim = static_cast<size_t>(dims[i]);
    empty = empty || dim == 0;
    if (__builtin_mul_overflow(count, dim, &count)) count = PTRDIFF_MAX;
  }
  return empty ? 0 : count;
}

bool Shape::Possible() const {
  constexpr uint64_t kMost = PTRDIFF_MAX / sizeof(int64_t);
  uint64_t count = 1;
  bool empty = false, reachable = true;
  for (size_t i = 0; i < rank; ++i) {
    if (dims[i] < 0) return false;
    const uint64_t dim = static_cast<uint64_t>(dims[i]);
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(count, dim, &count) || count > kMost) {
      reachable = false;
      count = 1;
    }
  }
  return empty || reachable;
}

ShapeText::ShapeText(const int64_t* dims, size_t rank) {
  size_t used = static_cast<size_t>(snprintf(text, sizeof(text), "["));
  for (size_t i = 0; i < rank && used + 24 < sizeof(text); ++i) {
    used += static_cast<size_t>(
        snprintf(text + used, sizeof(text) - used, "%s%lld", i == 0 ? "" : ",", static_cast<long long>(dims[i])));
  }
  snprintf(text + used, sizeof(text) - used, "]");
}

namespace {

// CopyShape reads a shape from runtimes before 1.24, which allocate an object for it.
OrtStatus* CopyShape(const Api& api, const OrtValue* value, Shape* shape) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  if (OrtStatus* status = api.ort->GetTensorTypeAndShape(value, &info)) return status;
  OrtStatus* status = api.ort->GetDimensionsCount(info, &shape->rank);
  if (status == nullptr && shape->rank <= kMaxRank) {
    status = api.ort->GetDimensions(info, shape->own, shape->rank);
  }
  shape->dims = shape->own;
  api.ort->ReleaseTensorTypeAndShapeInfo(info);
  return status;
}

}  // namespace

OrtStatus* ReadShape(const Api& api, const OrtValue* value, Shape* shape) {
  if (!api.has_shape_reference()) return CopyShape(api, value, shape);
  ONNXTensorElementDataType type;
  return api.ort->GetTensorElementTypeAndShapeDataReference(value, &type, &shape->dims, &shape->rank);
}

OrtStatus* ParallelFor(const Api& api, OrtKernelContext* context, void (*fn)(void*, size_t), size_t tasks,
                       void* state) {
  if (tasks > 1 && api.has_parallel_for()) {
    return api.ort->KernelContext_ParallelFor(context, fn, tasks, 0, state);
  }
  for (size_t i = 0; i < tasks; ++i) fn(state, i);
  return nullptr;
}

}  // namespace mojo
