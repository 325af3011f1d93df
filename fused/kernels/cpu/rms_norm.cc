// RMSNorm and AddRMSNorm on the CPU.
#include <new>

#include "common/rms_norm.h"
#include "cpu/backends.h"
#include "cpu/prepared_scale.h"

namespace mojo {
namespace {

// NormKernel is the state of one node. Immutable after Create.
struct NormKernel {
  RMSNormAttributes attributes;
  NormFn run_stored;    // for a scale as it is stored
  NormFn run_prepared;  // for one widened to float32
  PreparedScale prepared;
};

void Destroy(void* state) { delete static_cast<NormKernel*>(state); }

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
      status = Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
    }
  }
  if (status == nullptr) status = kernel->prepared.Prepare(init, scale);
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
  if (kernel.prepared.data() != nullptr) {
    args.scale = kernel.prepared.data();
    kernel.prepared.SetShape(&scale);
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
