// The inputs and outputs of a running kernel.
#include "common/op.h"

namespace mojo {

OrtStatus* ReadTensor(const Api& api, const OpDef& def, size_t index, const OrtValue* value, const void** data,
                      Shape* shape) {
  const char* input = def.input_names[index];
  if (OrtStatus* status = ReadShape(api, value, shape)) return status;
  if (shape->rank > kMaxRank) {
    return Errorf(api, "mojo.%s: %s has rank %zu; at most %zu dimensions are supported", def.name, input, shape->rank,
                  kMaxRank);
  }
  if (!shape->Possible()) {
    return Errorf(api, "mojo.%s: %s has shape %s, which no tensor can have", def.name, input, ShapeText(*shape).text);
  }
  // GetTensorMutableData serves reading as well and is in every runtime.
  if (OrtStatus* s = api.ort->GetTensorMutableData(const_cast<OrtValue*>(value), const_cast<void**>(data))) return s;
  alignas(64) static const char no_elements = 0;
  if (*data == nullptr) *data = &no_elements;  // a tensor without elements may have no memory, and is not left out
  return nullptr;
}

OrtStatus* ReadInput(const Api& api, OrtKernelContext* context, const OpDef& def, size_t index, const void** data,
                     Shape* shape) {
  const OrtValue* value = nullptr;
  *data = nullptr;
  if (OrtStatus* status = api.ort->KernelContext_GetInput(context, index, &value)) return status;
  if (value != nullptr) return ReadTensor(api, def, index, value, data, shape);
  if (index >= def.required_inputs) return nullptr;
  return Errorf(api, "mojo.%s: input %s is missing", def.name, def.input_names[index]);
}

OrtStatus* MakeOutput(const Api& api, OrtKernelContext* context, const OpDef& def, size_t index, const Shape& shape,
                      void** data) {
  OrtValue* value = nullptr;
  OrtStatus* status = api.ort->KernelContext_GetOutput(context, index, shape.dims, shape.rank, &value);
  if (status != nullptr) return status;
  *data = nullptr;
  if (value != nullptr) return api.ort->GetTensorMutableData(value, data);
  if (index >= def.required_outputs) return nullptr;
  return Errorf(api, "mojo.%s: output %zu is left out; the op requires it", def.name, index);
}

}  // namespace mojo
