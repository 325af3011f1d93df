// GLU on the CPU.
#include <new>

#include "common/glu.h"
#include "cpu/backends.h"

namespace mojo {
namespace {

// GateKernel is the state of one node. Immutable after Create.
struct GateKernel {
  GLUAttributes attributes;
  GateFn run;
};

void Destroy(void* state) { delete static_cast<GateKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  GLUAttributes attributes{};
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  const GateFn run = TheKernels()->gate(ToElementType(init.types.inputs[0]), ToGateKind(attributes.activation));
  auto* kernel = new (std::nothrow) GateKernel{attributes, run};
  if (kernel == nullptr) return OutOfMemory(init.api);
  *state = kernel;
  return nullptr;
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const GateKernel*>(state);
  GateArgs args{};
  Shape gate, up;
  if (OrtStatus* s = ReadInput(api, context, kGLU, 0, &args.gate, &gate)) return s;
  if (OrtStatus* s = ReadInput(api, context, kGLU, 1, &args.up, &up)) return s;
  if (OrtStatus* s = CheckSame(api, kGLU, "gate", gate, "up", up)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kGLU, 0, gate, &args.y)) return s;
  const size_t count = gate.Count();
  if (count == 0) return nullptr;
  args.alpha = kernel.attributes.alpha;
  args.limit = kernel.attributes.limit;
  args.up_offset = kernel.attributes.up_offset;
  return RunInTasks(api, context, kernel.run, args, count, 1);
}

}  // namespace

const Backend kCPUGLU = {nullptr, Create, Compute, Destroy, MayInPlace<0, 0, 1, 0>};

}  // namespace mojo
