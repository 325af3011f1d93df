// MoE on the CPU.

#include "moe/common/moe.h"
#include "cpu/backends.h"
#include "moe/cpu/moe_run.h"

namespace mojo {
namespace {

// MoEKernel is the state of one node.
struct MoEKernel {
  MoEAttributes attributes{};
  ElementType x = kFloat32, weights = kFloat32, experts = kFloat32;
  HostMemory memory;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* MoEKernel::Init(const KernelInit& init) {
  const auto type = [&](MoEInput input) { return ToElementType(init.types.inputs[input]); };
  x = type(kMoEX);
  weights = type(kMoEWeights);
  experts = type(kMoEGateUp);
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  return memory.Find(init);
}

OrtStatus* MoEKernel::Compute(const Api& api, OrtKernelContext* context) const {
  MoECall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  const MoEShape shape = ShapeOf(call.sizes);
  const auto* ids = call.Get<int64_t>(kMoEIds);
  if (OrtStatus* s = CheckIds(api, kMoE, ids, shape)) return s;
  MoEArgs args;
  if (OrtStatus* s = call.Make(0, &args.y)) return s;
  args.x_type = x;
  args.weights_type = weights;
  args.expert_type = experts;
  args.x = call.data[kMoEX];
  args.weights = call.data[kMoEWeights];
  args.ids = ids;
  args.gate_up = {call.data[kMoEGateUp], call.data[kMoEGateUpBias], !attributes.gate_up_in_out};
  args.down = {call.data[kMoEDown], call.data[kMoEDownBias], !attributes.down_in_out};
  args.Set(shape, attributes.gate, attributes.packing);
  return RunMoE(api, context, memory, args);
}

}  // namespace

const Backend kCPUMoE = MakeBackend<MoEKernel>(nullptr);

}  // namespace mojo
