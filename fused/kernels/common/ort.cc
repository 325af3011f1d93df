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

size_t Shape::Count() const {
  size_t count = 1;
  for (size_t i = 0; i < rank; ++i) count *= static_cast<size_t>(dims[i]);
  return count;
}

ShapeText::ShapeText(const int64_t* dims, size_t rank) {
  size_t used = static_cast<size_t>(snprintf(text, sizeof(text), "["));
  for (size_t i = 0; i < rank && used + 24 < sizeof(text); ++i) {
    used += static_cast<size_t>(snprintf(text + used, sizeof(text) - used, "%s%lld",
                                         i == 0 ? "" : ",", static_cast<long long>(dims[i])));
  }
  snprintf(text + used, sizeof(text) - used, "]");
}

namespace {

OrtStatus* CheckRank(const Api& api, size_t rank) {
  if (rank <= kMaxRank) return nullptr;
  return Errorf(api, "a tensor of rank %zu was given; at most %zu dimensions are supported", rank,
                kMaxRank);
}

// CopyShape is the way of runtimes before 1.24, which allocate an object to tell a shape.
OrtStatus* CopyShape(const Api& api, const OrtValue* value, Shape* shape) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  if (OrtStatus* status = api.ort->GetTensorTypeAndShape(value, &info)) return status;
  OrtStatus* status = api.ort->GetDimensionsCount(info, &shape->rank);
  if (status == nullptr) status = CheckRank(api, shape->rank);
  if (status == nullptr) status = api.ort->GetDimensions(info, shape->own, shape->rank);
  shape->dims = shape->own;
  api.ort->ReleaseTensorTypeAndShapeInfo(info);
  return status;
}

}  // namespace

OrtStatus* ReadShape(const Api& api, const OrtValue* value, Shape* shape) {
  if (!api.has_shape_reference()) return CopyShape(api, value, shape);
  ONNXTensorElementDataType type;
  OrtStatus* status = api.ort->GetTensorElementTypeAndShapeDataReference(value, &type, &shape->dims,
                                                                         &shape->rank);
  if (status != nullptr) return status;
  return CheckRank(api, shape->rank);
}

OrtStatus* ReadInput(const Api& api, OrtKernelContext* context, size_t index, const void** data,
                     Shape* shape) {
  const OrtValue* value = nullptr;
  if (OrtStatus* status = api.ort->KernelContext_GetInput(context, index, &value)) return status;
  if (value == nullptr) return Errorf(api, "input %zu is missing", index);
  if (shape != nullptr) {
    if (OrtStatus* status = ReadShape(api, value, shape)) return status;
  }
  // GetTensorMutableData serves reading as well and is in every runtime.
  return api.ort->GetTensorMutableData(const_cast<OrtValue*>(value), const_cast<void**>(data));
}

OrtStatus* MakeOutput(const Api& api, OrtKernelContext* context, size_t index, bool optional,
                      const Shape& shape, void** data) {
  OrtValue* value = nullptr;
  OrtStatus* status =
      api.ort->KernelContext_GetOutput(context, index, shape.dims, shape.rank, &value);
  if (status != nullptr) return status;
  *data = nullptr;
  if (value == nullptr) {
    return optional ? nullptr : Errorf(api, "output %zu is left out; the op requires it", index);
  }
  return api.ort->GetTensorMutableData(value, data);
}

OrtStatus* ParallelFor(const Api& api, OrtKernelContext* context, void (*fn)(void*, size_t),
                       size_t tasks, void* state) {
  if (tasks > 1 && api.has_parallel_for()) {
    return api.ort->KernelContext_ParallelFor(context, fn, tasks, 0, state);
  }
  for (size_t i = 0; i < tasks; ++i) fn(state, i);
  return nullptr;
}

}  // namespace mojo
