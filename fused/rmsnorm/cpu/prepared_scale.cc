#include "rmsnorm/cpu/prepared_scale.h"

#include <new>

namespace mojo {

OrtStatus* PreparedScale::Prepare(const KernelInit& init, size_t index) {
  const Api& api = init.api;
  type_ = ToElementType(init.types.inputs[index]);
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
  TheKernels()->to_float32(type_, data, data_.get(), count);
  return nullptr;
}

OrtStatus* PreparedScale::AsFloats(const Api& api, const void* stored, size_t count, ScaleRoom* room,
                                   const float** data) const {
  if (data_ != nullptr || type_ == kFloat32) {
    *data = data_ != nullptr ? data_.get() : static_cast<const float*>(stored);
    return nullptr;
  }
  float* to = room->on_stack_;
  if (count > ScaleRoom::kOnStack) {
    room->on_heap_.reset(to = new (std::nothrow) float[count]);
    if (to == nullptr) return OutOfMemory(api);
  }
  TheKernels()->to_float32(type_, stored, to, count);
  *data = to;
  return nullptr;
}

}  // namespace mojo
