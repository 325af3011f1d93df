// GLU on the CPU.

#include "common/attributes.h"
#include "cpu/backends.h"

namespace mojo {
namespace {

// GateKernel is the state of one node.
struct GateKernel {
  GLUAttributes attributes{};
  GateFn run = nullptr;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* GateKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  run = TheKernels()->gate(ToElementType(init.types.inputs[0]), ToGateKind(attributes.activation));
  return nullptr;
}

OrtStatus* GateKernel::Compute(const Api& api, OrtKernelContext* context) const {
  GateArgs args{};
  Shape gate, up;
  if (OrtStatus* s = ReadInput(api, context, kGLU, 0, &args.gate, &gate)) return s;
  if (OrtStatus* s = ReadInput(api, context, kGLU, 1, &args.up, &up)) return s;
  if (OrtStatus* s = CheckSame(api, kGLU, "gate", gate, "up", up)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kGLU, 0, gate, &args.y)) return s;
  const size_t count = gate.Count();
  if (count == 0) return nullptr;
  args.alpha = attributes.alpha;
  args.limit = attributes.limit;
  args.up_offset = attributes.up_offset;
  return RunInTasks(api, context, run, args, count, 1);
}

}  // namespace

const Backend kCPUGLU = MakeBackend<GateKernel>(nullptr, MayInPlace<0, 0, 1, 0>);

}  // namespace mojo
