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
  NormFn run = nullptr;
  PreparedScale prepared;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

template <bool kAdd>
OrtStatus* NormKernel<kAdd>::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  NormKey key;
  key.x = ToElementType(init.types.inputs[0]);
  key.y = ToElementType(init.types.outputs[0]);
  key.scale_after_cast = attributes.scale_after_cast;
  key.add = kAdd;
  run = TheKernels()->norm(key);
  if (run == nullptr) {
    return Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
  }
  return prepared.Prepare(init, kAdd ? 2 : 1);
}

template <bool kAdd>
OrtStatus* NormKernel<kAdd>::Compute(const Api& api, OrtKernelContext* context) const {
  const OpDef& def = kAdd ? kAddRMSNorm : kRMSNorm;
  const int64_t axis = attributes.axis;
  NormArgs args{};
  Shape x, scale;
  if (OrtStatus* s = ReadInput(api, context, def, 0, &args.x, &x)) return s;
  if (kAdd) {
    Shape residual;
    if (OrtStatus* s = ReadInput(api, context, def, 1, &args.residual, &residual)) return s;
    if (OrtStatus* s = CheckSame(api, def, "X", x, "residual", residual)) return s;
  }
  ScaleRoom room;
  if (OrtStatus* s = prepared.Read(api, context, def, &room, &args.scale, &scale)) return s;
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
