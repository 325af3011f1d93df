// AddLayerNorm on the CPU.
#include "cpu/backends.h"

namespace mojo {
namespace {

// LayerKernel is the state of one node.
struct LayerKernel : NodeState<AddLayerNormAttributes> {
  LayerFn run = nullptr;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState::Init(init)) return s;
    run = TheKernels()->layer(Input(0), Output(0));
    return run == nullptr ? NoKernel(init) : nullptr;
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    AddLayerNormCall call(api, context, attributes);
    void *y, *sum;
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = call.Make(0, &y)) return s;
    if (OrtStatus* s = call.Make(1, &sum)) return s;
    if (call.sizes.A == 0 || call.sizes.D == 0) return nullptr;
    const LayerArgs args = {call.data[kAddLayerNormX],
                            call.data[kAddLayerNormResidual],
                            call.data[kAddLayerNormXBias],
                            call.data[kAddLayerNormScale],
                            call.data[kAddLayerNormBias],
                            y,
                            sum,
                            call.sizes.D,
                            attributes.epsilon};
    return RunInTasks(api, context, run, args, call.sizes.A, call.sizes.D);
  }
};

}  // namespace

// X's memory for sum and residual's for Y: sum, which the later passes read, must never be Y's.
const Backend kCPUAddLayerNorm = MakeBackend<LayerKernel>(nullptr, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
