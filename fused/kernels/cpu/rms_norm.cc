// RMSNorm and AddRMSNorm on the CPU.
#include <new>

#include "common/ops.h"
#include "cpu/backends.h"

namespace mojo {
namespace {

// NormKernel is the state of one node. Immutable after Create.
struct NormKernel {
  RMSNormAttributes attributes;
  NormFn run_stored;    // for a scale as it is stored
  NormFn run_prepared;  // for one widened to float32
  float* prepared;      // the scale in float32 where it is a constant, else null
  size_t prepared_rank;
  int64_t prepared_dims[kMaxRank];
};

// Prepare keeps a constant scale as float32: a run then neither fetches it nor widens it.
OrtStatus* Prepare(const KernelInit& init, size_t index, NormKernel* kernel) {
  const Api& api = init.api;
  int is_constant = 0;
  const OrtValue* value = nullptr;
  OrtStatus* status =
      api.ort->KernelInfoGetConstantInput_tensor(init.info, index, &is_constant, &value);
  if (status != nullptr) {
    api.ort->ReleaseStatus(status);
    return nullptr;
  }
  if (is_constant == 0 || value == nullptr) return nullptr;
  Shape shape;
  const void* data = nullptr;
  if (OrtStatus* s = ReadTensor(api, init.def, index, value, &data, &shape)) return s;
  const size_t count = shape.Count();
  if (count == 0) return nullptr;
  kernel->prepared = new (std::nothrow) float[count];
  if (kernel->prepared == nullptr) return OutOfMemory(api);
  TheKernels()->to_float32(ToElementType(init.types.inputs[index]), data, kernel->prepared, count);
  kernel->prepared_rank = shape.rank;
  for (size_t i = 0; i < shape.rank; ++i) kernel->prepared_dims[i] = shape.dims[i];
  return nullptr;
}

void Destroy(void* state) {
  auto* kernel = static_cast<NormKernel*>(state);
  if (kernel == nullptr) return;
  delete[] kernel->prepared;
  delete kernel;
}

template <bool kAdd>
OrtStatus* Create(const KernelInit& init, void** state) {
  auto* kernel = new (std::nothrow) NormKernel{};
  if (kernel == nullptr) return OutOfMemory(init.api);
  const size_t scale = kAdd ? 2 : 1;
  OrtStatus* status = ReadAttributes(init, &kernel->attributes);
  if (status == nullptr) {
    NormKey key;
    key.x = ToElementType(init.types.inputs[0]);
    key.y = ToElementType(init.types.outputs[0]);
    key.scale = ToElementType(init.types.inputs[scale]);
    key.scale_after_cast = kernel->attributes.scale_after_cast;
    key.add = kAdd;
    kernel->run_stored = TheKernels()->norm(key);
    key.scale = kFloat32;
    kernel->run_prepared = TheKernels()->norm(key);
    if (kernel->run_stored == nullptr || kernel->run_prepared == nullptr) {
      status = Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types",
                      init.def.name);
    }
  }
  if (status == nullptr) status = Prepare(init, scale, kernel);
  if (status != nullptr) {
    Destroy(kernel);
    return status;
  }
  *state = kernel;
  return nullptr;
}

template <bool kAdd>
OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const NormKernel*>(state);
  const OpDef& def = kAdd ? kAddRMSNorm : kRMSNorm;
  const int64_t axis = kernel.attributes.axis;
  NormArgs args{};
  NormFn run = kernel.run_prepared;
  Shape x, scale;
  if (OrtStatus* s = ReadInput(api, context, def, 0, &args.x, &x)) return s;
  if (kAdd) {
    Shape residual;
    if (OrtStatus* s = ReadInput(api, context, def, 1, &args.residual, &residual)) return s;
    if (OrtStatus* s = CheckSame(api, def, "X", x, "residual", residual)) return s;
  }
  if (kernel.prepared != nullptr) {
    args.scale = kernel.prepared;
    scale.dims = kernel.prepared_dims;
    scale.rank = kernel.prepared_rank;
  } else {
    run = kernel.run_stored;
    if (OrtStatus* s = ReadInput(api, context, def, kAdd ? 2 : 1, &args.scale, &scale)) return s;
  }
  size_t rows, width;
  if (OrtStatus* s = SplitAtAxis(api, def, x, axis, &rows, &width)) return s;
  if (OrtStatus* s = CheckScale(api, def, x, axis, scale)) return s;
  if (OrtStatus* s = MakeOutput(api, context, def, 0, x, &args.y)) return s;
  if (kAdd) {
    if (OrtStatus* s = MakeOutput(api, context, def, 1, x, &args.sum)) return s;
  }
  if (rows == 0 || width == 0) return nullptr;
  args.width = width;
  args.epsilon = kernel.attributes.epsilon;
  return RunInTasks(api, context, run, args, rows, width);
}

}  // namespace

const Backend kCPURMSNorm = {nullptr, Create<false>, Compute<false>, Destroy, MayInPlace<0, 0>};
// X's memory for sum and residual's for Y: sum, which the second pass reads, must never be Y's.
const Backend kCPUAddRMSNorm = {nullptr, Create<true>, Compute<true>, Destroy, MayInPlace<0, 1, 1, 0>};

}  // namespace mojo
