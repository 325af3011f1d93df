// AddLayerNorm on the CPU.
#include "common/add_layer_norm.h"

#include "cpu/backends.h"

namespace mojo {
namespace {

// LayerKernel is the state of one node.
struct LayerKernel {
  AddLayerNormAttributes attributes{};
  LayerFn run = nullptr;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* LayerKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  run = TheKernels()->layer(ToElementType(init.types.inputs[0]), ToElementType(init.types.outputs[0]));
  if (run == nullptr) {
    return Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
  }
  return nullptr;
}

OrtStatus* LayerKernel::Compute(const Api& api, OrtKernelContext* context) const {
  AddLayerNormTensors t;
  if (OrtStatus* s = ReadAddLayerNorm(api, context, &t)) return s;
  if (t.rows == 0 || t.width == 0) return nullptr;
  const LayerArgs args = {t.x, t.residual, t.x_bias, t.scale, t.bias, t.y, t.sum, t.width, attributes.epsilon};
  return RunInTasks(api, context, run, args, t.rows, t.width);
}

}  // namespace

// X's memory for sum and residual's for Y: sum, which the later passes read, must never be Y's.
const Backend kCPUAddLayerNorm = MakeBackend<LayerKernel>(nullptr, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
