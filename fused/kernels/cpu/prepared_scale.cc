#include "cpu/prepared_scale.h"

#include <new>

#include "cpu/backends.h"

namespace mojo {

OrtStatus* PreparedScale::Prepare(const KernelInit& init, size_t index) {
  const Api& api = init.api;
  int is_constant = 0;
  const OrtValue* value = nullptr;
  OrtStatus* status = api.ort->KernelInfoGetConstantInput_tensor(init.info, index, &is_constant, &value);
  if (status != nullptr) {
    api.ort->ReleaseStatus(status);
    return nullptr;
  }
  if (is_constant == 0 || value == nullptr) return nullptr;
  Shape read;
  const void* data = nullptr;
  if (OrtStatus* s = ReadTensor(api, init.def, index, value, &data, &read)) return s;
  const size_t count = read.Count();
  if (count == 0) return nullptr;
  data_.reset(new (std::nothrow) float[count]);
  if (data_ == nullptr) return OutOfMemory(api);
  TheKernels()->to_float32(ToElementType(init.types.inputs[index]), data, data_.get(), count);
  rank_ = read.rank;
  for (size_t i = 0; i < read.rank; ++i) dims_[i] = read.dims[i];
  return nullptr;
}

void PreparedScale::SetShape(Shape* shape) const {
  shape->rank = rank_;
  shape->dims = dims_;
}

}  // namespace mojo
