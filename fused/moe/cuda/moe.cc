// MoE on CUDA.

#include "moe/common/moe.h"
#include "moe/cuda/moe_tuned.h"

namespace mojo {
namespace {

// MoEKernel is the state of one node.
struct MoEKernel {
  MoEAttributes attributes{};
  MojoType x = kMojoFloat32, weights = kMojoFloat32, experts = kMojoFloat32;
  DeviceMemory memory;
  TunedMoE tuned;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
  OrtStatus* ReadTables(const KernelInit& init);
  void SetForm(const MoEShape& shape, MojoMoEArgs* args) const;
};

// SetForm writes the node's attributes and types, and the sizes, into args.
void MoEKernel::SetForm(const MoEShape& shape, MojoMoEArgs* args) const {
  SetExperts(shape, attributes.gate, attributes.packing, args);
  args->x_type = x;
  args->weights_type = weights;
  args->expert_type = experts;
  args->gate_up_in_out = attributes.gate_up_in_out;
  args->down_in_out = attributes.down_in_out;
}

// ReadTables reads the tables for the node.
OrtStatus* MoEKernel::ReadTables(const KernelInit& init) {
  const char* format = "";
  if (x == experts && attributes.gate_up_in_out == attributes.down_in_out) {
    if (x == kMojoBFloat16) format = "bfloat16";
    if (x == kMojoFloat16) format = "float16";
  }
  return tuned.Read(init, format, attributes.gate_up_in_out,
                    [&](const MoETableShape& s, size_t tokens, const MojoMoEConfig& config) {
                      MojoMoEArgs call{};
                      SetForm({tokens, s.top_k, s.experts, s.hidden, s.inner, 0}, &call);
                      call.config = config;
                      return MojoMoETakes(&call) != 0;
                    });
}

OrtStatus* MoEKernel::Init(const KernelInit& init) {
  x = ToMojoType(init.types.inputs[kMoEX]);
  weights = ToMojoType(init.types.inputs[kMoEWeights]);
  experts = ToMojoType(init.types.inputs[kMoEGateUp]);
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  if (OrtStatus* s = memory.Find(init)) return s;
  return ReadTables(init);
}

// This does not check the ids as the CPU backend does: they are on the device, and waiting for them would stop the
// stream. The kernels skip invalid ids.
OrtStatus* MoEKernel::Compute(const Api& api, OrtKernelContext* context) const {
  MojoMoEArgs args{};
  cudaStream_t stream;
  MoECall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  const MoEShape shape = ShapeOf(call.sizes);
  if (OrtStatus* s = call.Make(0, &args.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (shape.tokens == 0 || shape.hidden == 0) return nullptr;
  args.x = call.data[kMoEX];
  args.weights = call.data[kMoEWeights];
  args.ids = call.Get<int64_t>(kMoEIds);
  args.gate_up = call.data[kMoEGateUp];
  args.down = call.data[kMoEDown];
  args.gate_up_bias = call.data[kMoEGateUpBias];
  args.down_bias = call.data[kMoEDownBias];
  SetForm(shape, &args);
  tuned.Choose(&args, [&args](const MojoMoEConfig& config) {
    MojoMoEArgs call = args;
    call.config = config;
    return MojoMoETakes(&call) != 0;
  });
  Scratch scratch(memory);
  if (OrtStatus* s = scratch.Take(api, context, kMoE, MojoMoEScratch(&args), &args.scratch)) return s;
  return Launched(api, kMoE, MojoCudaMoE(&args, stream));
}

}  // namespace

const Backend kCUDAMoE = MakeBackend<MoEKernel>(kCUDAProvider);

}  // namespace mojo
