// BiasGELU on the CPU.
#include "common/attributes.h"
#include "cpu/backends.h"

namespace mojo {
namespace {

// GeluKernel is the state of one node.
struct GeluKernel {
  BiasGELUAttributes attributes{};
  BiasGateFn run = nullptr;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* GeluKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  run = TheKernels()->bias_gate(ToElementType(init.types.inputs[0]), attributes.activation);
  return nullptr;
}

OrtStatus* GeluKernel::Compute(const Api& api, OrtKernelContext* context) const {
  BiasGELUCall call(api, context, attributes);
  void* y;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &y)) return s;
  if (call.sizes.A == 0 || call.sizes.D == 0) return nullptr;
  const BiasGateArgs args = {call.data[kBiasGELUX], call.data[kBiasGELUBias], y, call.sizes.D, attributes.alpha};
  return RunInTasks(api, context, run, args, call.sizes.A, call.sizes.D);
}

}  // namespace

const Backend kCPUBiasGELU = MakeBackend<GeluKernel>(nullptr, MayInPlace<0, 0>);

}  // namespace mojo
