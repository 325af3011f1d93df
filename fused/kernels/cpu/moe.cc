// MoE on the CPU.

#include "common/moe.h"
#include "cpu/backends.h"
#include "cpu/moe_run.h"

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
  Shape shapes[kMaxInputs];
  const void* data[kMaxInputs];
  MoEShape shape;
  if (OrtStatus* s = ReadMoE(api, context, attributes, data, shapes, &shape)) return s;
  const auto* ids = static_cast<const int64_t*>(data[kMoEIds]);
  if (OrtStatus* s = CheckIds(api, kMoE, ids, shape)) return s;
  MoEArgs args;
  if (OrtStatus* s = MakeOutput(api, context, kMoE, 0, shapes[kMoEX], &args.y)) return s;
  args.x_type = x;
  args.weights_type = weights;
  args.expert_type = experts;
  args.x = data[kMoEX];
  args.weights = data[kMoEWeights];
  args.ids = ids;
  args.gate_up = {data[kMoEGateUp], data[kMoEGateUpBias], !attributes.gate_up_in_out};
  args.down = {data[kMoEDown], data[kMoEDownBias], !attributes.down_in_out};
  args.Set(shape, attributes.gate, attributes.packing);
  return RunMoE(api, context, memory, args);
}

}  // namespace

const Backend kCPUMoE = MakeBackend<MoEKernel>(nullptr);

}  // namespace mojo
