// BiasGELU on the CPU.
#include "common/bias_gelu.h"

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
  run = TheKernels()->bias_gate(ToElementType(init.types.inputs[0]), ToGateKind(attributes.activation));
  return nullptr;
}

OrtStatus* GeluKernel::Compute(const Api& api, OrtKernelContext* context) const {
  BiasGELUTensors t;
  if (OrtStatus* s = ReadBiasGELU(api, context, &t)) return s;
  if (t.rows == 0 || t.width == 0) return nullptr;
  const BiasGateArgs args = {t.x, t.bias, t.y, t.width, attributes.alpha};
  return RunInTasks(api, context, run, args, t.rows, t.width);
}

}  // namespace

const Backend kCPUBiasGELU = MakeBackend<GeluKernel>(nullptr, MayInPlace<0, 0>);

}  // namespace mojo
