// aclTensor and the other arguments of aclnn calls.
#include "tensor.h"

#include <mutex>
#include <set>

#include "opbase.h"

using namespace cann_emulation;

namespace {

std::mutex mutex;
std::set<const aclTensor*>& alive() {
  static std::set<const aclTensor*>& tensors = *new std::set<const aclTensor*>;
  return tensors;
}

constexpr int kAlignment = 32;  // of a tensor's memory, in bytes

}  // namespace

bool cann_emulation::Alive(const aclTensor* tensor) {
  std::lock_guard<std::mutex> lock(mutex);
  return alive().count(tensor) != 0;
}

extern "C" {

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* tensorData) {
  if (Called("aclCreateTensor")) return nullptr;
  auto refuse = [](const std::string& text) {
    Refuse(ACLNN_ERR_PARAM_INVALID, "aclCreateTensor: " + text);
    return static_cast<aclTensor*>(nullptr);
  };
  if ((viewDimsNum && !viewDims) || (storageDimsNum && !storageDims)) return refuse("dims are NULL");
  if (!aclDataTypeSize(dataType)) return refuse(Text("type %d", dataType));
  if (reinterpret_cast<uintptr_t>(tensorData) % kAlignment) {
    return refuse(Text("the memory at %p is not aligned to %d bytes", tensorData, kAlignment));
  }
  Tensor t = Contiguous(dataType, std::vector<int64_t>(viewDims, viewDims + viewDimsNum), tensorData);
  if (stride) t.strides.assign(stride, stride + viewDimsNum);
  t.offset = offset;
  int64_t room = 1, last = offset;
  for (uint64_t i = 0; i < storageDimsNum; ++i) room *= storageDims[i];
  for (uint64_t i = 0; i < viewDimsNum; ++i) {
    if (t.dims[i] < 0 || t.strides[i] < 0)
      return refuse(Text("dims %s, strides %s", Dims(t.dims).c_str(), Dims(t.strides).c_str()));
    last += (t.dims[i] - 1) * t.strides[i];
  }
  if (offset < 0 || (t.Size() > 0 && last >= room)) {
    return refuse(Text("dims %s, strides %s and offset %lld reach beyond a storage of %lld elements",
                       Dims(t.dims).c_str(), Dims(t.strides).c_str(), (long long)offset, (long long)room));
  }
  Created("tensor");
  auto* tensor = new aclTensor{std::move(t), format};
  std::lock_guard<std::mutex> lock(mutex);
  alive().insert(tensor);
  return tensor;
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  if (int planted = Called("aclDestroyTensor")) return planted;
  if (!tensor) return ACL_SUCCESS;
  std::lock_guard<std::mutex> lock(mutex);
  if (!alive().erase(tensor)) {
    return Refuse(ACLNN_ERR_PARAM_INVALID,
                  Text("aclDestroyTensor: %p is no tensor, or one that was destroyed", (const void*)tensor));
  }
  Destroyed("tensor");
  delete tensor;
  return ACL_SUCCESS;
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  if (Called("aclCreateTensorList")) return nullptr;
  auto* list = new aclTensorList;
  for (uint64_t i = 0; i < size; ++i) list->tensors.push_back(const_cast<aclTensor*>(value[i]));
  Created("list");
  return list;
}

aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
  if (int planted = Called("aclDestroyTensorList")) return planted;
  if (!array) return ACL_SUCCESS;
  int code = ACL_SUCCESS;
  for (const aclTensor* t : array->tensors) {  // a list owns its tensors
    if (int c = aclDestroyTensor(t)) code = c;
  }
  Destroyed("list");
  delete array;
  return code;
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  if (Called("aclCreateScalar")) return nullptr;
  if (!value || !aclDataTypeSize(dataType)) {
    Refuse(ACLNN_ERR_PARAM_INVALID, Text("aclCreateScalar: type %d at %p", dataType, value));
    return nullptr;
  }
  Created("scalar");
  return new aclScalar{ReadHost(value, dataType), dataType};
}

aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
  if (int planted = Called("aclDestroyScalar")) return planted;
  if (scalar) Destroyed("scalar");
  delete scalar;
  return ACL_SUCCESS;
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  if (Called("aclCreateIntArray")) return nullptr;
  Created("array");
  return new aclIntArray{std::vector<int64_t>(value, value + size)};
}

aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
  if (int planted = Called("aclDestroyIntArray")) return planted;
  if (array) Destroyed("array");
  delete array;
  return ACL_SUCCESS;
}
}
