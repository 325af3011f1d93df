// BiasGELU on the CPU.
#include "cpu/backends.h"

namespace mojo {
namespace {

// GeluKernel is the state of one node.
struct GeluKernel : NodeState<BiasGELUAttributes> {
  BiasGateFn run = nullptr;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState::Init(init)) return s;
    run = TheKernels()->bias_gate(Input(0), attributes.activation);
    return nullptr;
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    BiasGELUCall call(api, context, attributes);
    void* y;
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = call.Make(0, &y)) return s;
    if (call.sizes.A == 0 || call.sizes.D == 0) return nullptr;
    const BiasGateArgs args = {call.data[kBiasGELUX], call.data[kBiasGELUBias], y, call.sizes.D, attributes.alpha};
    return RunInTasks(api, context, run, args, call.sizes.A, call.sizes.D);
  }
};

}  // namespace

const Backend kCPUBiasGELU = MakeBackend<GeluKernel>(nullptr, MayInPlace<0, 0>);

}  // namespace mojo
