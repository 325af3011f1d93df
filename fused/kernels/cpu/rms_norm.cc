// RMSNorm and AddRMSNorm on the CPU.

#include "common/rms_norm.h"
#include "cpu/backends.h"
#include "cpu/prepared_scale.h"

namespace mojo {
namespace {

// NormKernel is the state of one node.
template <bool kAdd>
struct NormKernel {
  RMSNormAttributes attributes{};
  NormFn run_stored = nullptr;    // for a scale as it is stored
  NormFn run_prepared = nullptr;  // for one widened to float32
  PreparedScale prepared;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

template <bool kAdd>
OrtStatus* NormKernel<kAdd>::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  constexpr size_t kScale = kAdd ? 2 : 1;
  NormKey key;
  key.x = ToElementType(init.types.inputs[0]);
  key.y = ToElementType(init.types.outputs[0]);
  key.scale = ToElementType(init.types.inputs[kScale]);
  key.scale_after_cast = attributes.scale_after_cast;
  key.add = kAdd;
  run_stored = TheKernels()->norm(key);
  key.scale = kFloat32;
  run_prepared = TheKernels()->norm(key);
  if (run_stored == nullptr || run_prepared == nullptr) {
    return Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
  }
  return prepared.Prepare(init, kScale);
}

template <bool kAdd>
OrtStatus* NormKernel<kAdd>::Compute(const Api& api, OrtKernelContext* context) const {
  const OpDef& def = kAdd ? kAddRMSNorm : kRMSNorm;
  const int64_t axis = attributes.axis;
  NormArgs args{};
  NormFn run = run_prepared;
  Shape x, scale;
  if (OrtStatus* s = ReadInput(api, context, def, 0, &args.x, &x)) return s;
  if (kAdd) {
    Shape residual;
    if (OrtStatus* s = ReadInput(api, context, def, 1, &args.residual, &residual)) return s;
    if (OrtStatus* s = CheckSame(api, def, "X", x, "residual", residual)) return s;
  }
  if (prepared.data() != nullptr) {
    args.scale = prepared.data();
    prepared.SetShape(&scale);
  } else {
    run = run_stored;
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
  args.epsilon = attributes.epsilon;
  return RunInTasks(api, context, run, args, rows, width);
}

}  // namespace

const Backend kCPURMSNorm = MakeBackend<NormKernel<false>>(nullptr, MayInPlace<0, 0>);
// X's memory for sum and residual's for Y: sum, which the second pass reads, must never be Y's.
const Backend kCPUAddRMSNorm = MakeBackend<NormKernel<true>>(nullptr, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
