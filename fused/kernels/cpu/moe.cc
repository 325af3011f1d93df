// MoE on the CPU.

#include "common/moe.h"
#include "cpu/backends.h"
#include "cpu/moe_plan.h"
#include "cpu/moe_run.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// As much scratch memory as a run takes, about: that of 1900 tokens with 8 experts each, H 2048 and I 768.
constexpr size_t kScratchBytes = size_t{256} << 20;

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
  MoEArgs args{};
  if (OrtStatus* s = MakeOutput(api, context, kMoE, 0, shapes[kMoEX], &args.y)) return s;
  args.x_type = x;
  args.weights_type = weights;
  args.expert_type = experts;
  args.x = data[kMoEX];
  args.weights = data[kMoEWeights];
  args.ids = ids;
  args.gate_up = {data[kMoEGateUp], data[kMoEGateUpBias], !attributes.gate_up_in_out};
  args.down = {data[kMoEDown], data[kMoEDownBias], !attributes.down_in_out};
  args.tokens = shape.tokens;
  args.top_k = shape.k;
  args.experts = shape.experts;
  args.hidden = shape.hidden;
  args.inner = shape.inner;
  args.gated = attributes.packing != Packing::kNone;
  args.interleaved = attributes.packing == Packing::kInterleaved;
  args.activation = ToGateKind(attributes.gate.activation);
  args.alpha = attributes.gate.alpha;
  args.limit = attributes.gate.limit;
  args.up_offset = attributes.gate.up_offset;
  args.scratch_bytes = kScratchBytes;
  return RunMoE(api, context, memory, args);
}

}  // namespace

const Backend kCPUMoE = MakeBackend<MoEKernel>(nullptr);

}  // namespace mojo
