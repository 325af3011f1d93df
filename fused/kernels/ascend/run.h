// One run of a node: the calls that it makes, in order, on the session's stream.
#pragma once

#include <initializer_list>

#include "ascend/aclnn.h"
#include "ascend/loader.h"
#include "common/device_memory.h"

namespace mojo {

// The most dimensions of a CANN tensor.
constexpr size_t kMostDims = 8;

// Dims is the dimensions of a tensor, or its strides.
struct Dims {
  int64_t at[kMostDims] = {};
  size_t rank = 0;

  Dims() {}
  Dims(std::initializer_list<int64_t> values) {
    for (int64_t v : values) Add(v);
  }
  // Add takes no more than kMostDims; the callers' ranks are checked before.
  void Add(int64_t value) {
    if (rank < kMostDims) at[rank++] = value;
  }
  int64_t Count() const;
};

// View is device memory as a tensor. data is the start of the memory, since CANN needs it aligned; the first element is
// offset elements later.
struct View {
  const void* data = nullptr;
  aclDataType type = ACL_FLOAT;
  Dims dims;
  Dims strides;
  int64_t offset = 0;
  Dims storage;  // the shape of the whole memory

  View() {}
  // A tensor without gaps.
  View(const void* d, aclDataType t, const Dims& all);
  // A part of the memory, or another order of it.
  View(const void* d, aclDataType t, const Dims& all, const Dims& steps, int64_t first, const Dims& whole)
      : data(d), type(t), dims(all), strides(steps), offset(first), storage(whole) {}
};

// ToAclType translates an element type.
aclDataType ToAclType(ONNXTensorElementDataType type);

// TypeSize is the bytes of an element.
size_t TypeSize(aclDataType type);

// Run makes the calls of a running node. It keeps the first failure in status and skips all later calls. CANN's objects
// and the scratch memory live until the Run ends, which is after the last launch but before the stream has done the
// work. The launches keep the parts of the objects that they need; for the memory see Scratch.
class Run {
 public:
  Run(OrtKernelContext* context, const OpDef& def, const DeviceMemory& memory);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run();

  OrtStatus* status = nullptr;
  bool ok() const { return status == nullptr; }
  // Finish hands the status over.
  OrtStatus* Finish();

  // Memory returns scratch memory for a tensor.
  View Memory(aclDataType type, const Dims& dims);

  // Objects of CANN; null is made a failure.
  aclTensor* Tensor(const View& view);
  const aclTensorList* List(const View& view);
  aclTensorList* OutList(const View& view);
  const aclScalar* Number(float value) { return Scalar(&value, ACL_FLOAT); }
  const aclScalar* False() {
    bool value = false;
    return Scalar(&value, ACL_BOOL);
  }
  const aclIntArray* Ints(int64_t value);

  // Do calls an operator.
  template <class... Args, class... Given>
  void Do(const Call<Args...>& call, Given... given) {
    if (!ok()) return;
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    const aclnnStatus planned = call.plan(given..., &size, &executor);
    if (planned != 0) return Failed(call.name, "GetWorkspaceSize", planned);
    Launch(call.name, call.launch, size, executor);
  }

  // Copy copies a tensor to another of its shape, or broadcasts it to a larger one.
  void Copy(const View& to, const View& from);
  // Cast returns a tensor converted to another type, or the tensor itself if it has that type.
  View Cast(const View& from, aclDataType type);
  void CastTo(const View& to, const View& from);

 private:
  using Launcher = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);
  void Launch(const char* name, Launcher launch, uint64_t size, aclOpExecutor* executor);
  void Failed(const char* name, const char* phase, aclnnStatus code);
  template <class T>
  T* Made(T* object, const char* what);
  bool HasRoom();
  aclTensor* NewTensor(const View& view);
  const aclScalar* Scalar(void* value, aclDataType type);

  // No op takes more than these in one run.
  static constexpr size_t kMost = 96;
  enum Kind : uint8_t { kTensor, kTensors, kNumber, kInts };
  struct Object {
    const void* object;
    Kind kind;
  };
  void Keep(const void* object, Kind kind);

  const Api& api_;
  OrtKernelContext* context_;
  const OpDef& def_;
  const DeviceMemory& memory_;
  aclrtStream stream_ = nullptr;
  Object objects_[kMost];
  size_t object_count_ = 0;
  Scratch* scratch_[kMost];
  size_t scratch_count_ = 0;
};

}  // namespace mojo
