#include "ascend/run.h"

#include <new>

namespace mojo {

int64_t Dims::Count() const {
  int64_t count = 1;
  for (size_t i = 0; i < rank; ++i) count *= at[i];
  return count;
}

View::View(const void* d, aclDataType t, const Dims& all) : data(d), type(t), dims(all), storage(all) {
  strides.rank = all.rank;
  int64_t step = 1;
  for (size_t i = all.rank; i-- > 0;) {
    strides.at[i] = step;
    step *= all.at[i];
  }
}

aclDataType ToAclType(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: return ACL_FLOAT16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16: return ACL_BF16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return ACL_INT64;
    default: return ACL_FLOAT;
  }
}

size_t TypeSize(aclDataType type) {
  switch (type) {
    case ACL_INT64: return 8;
    case ACL_FLOAT16:
    case ACL_BF16: return 2;
    case ACL_BOOL: return 1;
    default: return 4;
  }
}

Run::Run(OrtKernelContext* context, const OpDef& def, const DeviceMemory& memory)
    : api_(TheApi()), context_(context), def_(def), memory_(memory) {
  status = api_.ort->KernelContext_GetGPUComputeStream(context, &stream_);
}

Run::~Run() {
  const Cann& cann = TheCann();
  // Errors of destroying are ignored: no caller could act on them, and the work is on the stream.
  for (size_t i = object_count_; i-- > 0;) {
    const void* object = objects_[i].object;
    switch (objects_[i].kind) {
      case kTensor: cann.aclDestroyTensor(static_cast<const aclTensor*>(object)); break;
      case kTensors: cann.aclDestroyTensorList(static_cast<const aclTensorList*>(object)); break;
      case kNumber: cann.aclDestroyScalar(static_cast<const aclScalar*>(object)); break;
      case kInts: cann.aclDestroyIntArray(static_cast<const aclIntArray*>(object)); break;
    }
  }
  for (size_t i = scratch_count_; i-- > 0;) delete scratch_[i];
  if (status != nullptr) api_.ort->ReleaseStatus(status);
}

OrtStatus* Run::Finish() {
  OrtStatus* result = status;
  status = nullptr;
  return result;
}

View Run::Memory(aclDataType type, const Dims& dims) {
  View view(nullptr, type, dims);
  if (!ok()) return view;
  auto* scratch = scratch_count_ < kMost ? new (std::nothrow) Scratch(memory_) : nullptr;
  if (scratch == nullptr) {
    status = OutOfMemory(api_);
    return view;
  }
  scratch_[scratch_count_++] = scratch;
  void* data = nullptr;
  status = scratch->Take(api_, context_, def_, static_cast<size_t>(dims.Count()) * TypeSize(type), &data);
  view.data = data;
  return view;
}

void Run::Keep(const void* object, Kind kind) { objects_[object_count_++] = Object{object, kind}; }

template <class T>
T* Run::Made(T* object, const char* what) {
  if (object == nullptr) Failed(what, "", -1);
  return object;
}

bool Run::HasRoom() {
  if (ok() && object_count_ == kMost) status = OutOfMemory(api_);
  return ok();
}

aclTensor* Run::NewTensor(const View& view) {
  if (!HasRoom()) return nullptr;
  return Made(
      TheCann().aclCreateTensor(view.dims.at, view.dims.rank, view.type, view.strides.at, view.offset, ACL_FORMAT_ND,
                                view.storage.at, view.storage.rank, const_cast<void*>(view.data)),
      "aclCreateTensor");
}

aclTensor* Run::Tensor(const View& view) {
  aclTensor* tensor = NewTensor(view);
  if (tensor != nullptr) Keep(tensor, kTensor);
  return tensor;
}

aclTensorList* Run::OutList(const View& view) {
  const aclTensor* tensor = NewTensor(view);
  if (tensor == nullptr) return nullptr;
  aclTensorList* list = Made(TheCann().aclCreateTensorList(&tensor, 1), "aclCreateTensorList");
  if (list != nullptr) {
    Keep(list, kTensors);  // with the tensor
  } else {
    Keep(tensor, kTensor);
  }
  return list;
}

const aclTensorList* Run::List(const View& view) { return OutList(view); }

const aclScalar* Run::Scalar(void* value, aclDataType type) {
  if (!HasRoom()) return nullptr;
  const aclScalar* scalar = Made(TheCann().aclCreateScalar(value, type), "aclCreateScalar");
  if (scalar != nullptr) Keep(scalar, kNumber);
  return scalar;
}

const aclIntArray* Run::Ints(int64_t value) {
  if (!HasRoom()) return nullptr;
  const aclIntArray* ints = Made(TheCann().aclCreateIntArray(&value, 1), "aclCreateIntArray");
  if (ints != nullptr) Keep(ints, kInts);
  return ints;
}

void Run::Launch(const char* name, Launcher launch, uint64_t size, aclOpExecutor* executor) {
  Scratch workspace(memory_);
  void* data = nullptr;
  status = workspace.Take(api_, context_, def_, static_cast<size_t>(size), &data);
  if (!ok()) {
    const Cann& cann = TheCann();
    // A launch destroys its executor; this one is never launched, and only a repeatable one is the caller's.
    if (cann.aclSetAclOpExecutorRepeatable(executor) == 0) cann.aclDestroyAclOpExecutor(executor);
    return;
  }
  const aclnnStatus launched = launch(data, size, executor, stream_);
  if (launched != 0) Failed(name, "", launched);
}

void Run::Failed(const char* name, const char* phase, aclnnStatus code) {
  // Reading the message also clears it: the provider's own kernels would report a leftover one as theirs.
  const char* message = TheCann().aclGetRecentErrMsg();
  status = Errorf(api_, "mojo.%s: %s%s failed with status %d: %.700s", def_.name, name, phase, static_cast<int>(code),
                  message == nullptr ? "CANN gives no message" : message);
}

void Run::Copy(const View& to, const View& from) { Do(TheCann().InplaceCopy, Tensor(to), Tensor(from)); }

void Run::CastTo(const View& to, const View& from) { Do(TheCann().Cast, Tensor(from), to.type, Tensor(to)); }

View Run::Cast(const View& from, aclDataType type) {
  if (from.type == type) return from;
  const View to = Memory(type, from.dims);
  CastTo(to, from);
  return to;
}

}  // namespace mojo
