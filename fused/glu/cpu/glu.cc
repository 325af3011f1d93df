// GLU on the CPU.
#include "cpu/backends.h"

namespace mojo {
namespace {

// GateKernel is the state of one node.
struct GateKernel : NodeState<GLUAttributes> {
  GateFn run = nullptr;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState::Init(init)) return s;
    run = TheKernels()->gate(Input(0), attributes.activation);
    return nullptr;
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    GateArgs args{};
    GLUCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = call.Make(0, &args.y)) return s;
    args.gate = call.data[kGLUGate];
    args.up = call.data[kGLUUp];
    const size_t count = call.sizes.A;
    if (count == 0) return nullptr;
    args.alpha = attributes.alpha;
    args.limit = attributes.limit;
    args.up_offset = attributes.up_offset;
    return RunInTasks(api, context, run, args, count, 1);
  }
};

}  // namespace

const Backend kCPUGLU = MakeBackend<GateKernel>(nullptr, MayInPlace<0, 0, 1, 0>);

}  // namespace mojo
