// MoE on CUDA.
#include <new>

#include "common/moe.h"
#include "cuda/moe_tuned.h"

namespace mojo {
namespace {

// MoEKernel is the state of one node. Immutable after Create.
struct MoEKernel {
  MoEAttributes attributes;
  MojoType x, weights, experts;
  DeviceMemory memory;
  TunedMoE tuned;
};

// SetForm writes the node's attributes and types, and the sizes, into args.
void SetForm(const MoEKernel& kernel, const MoEShape& shape, MojoMoEArgs* args) {
  const MoEAttributes& attributes = kernel.attributes;
  SetExperts(shape, attributes.gate, attributes.packing, args);
  args->x_type = kernel.x;
  args->weights_type = kernel.weights;
  args->expert_type = kernel.experts;
  args->gate_up_in_out = attributes.gate_up_in_out;
  args->down_in_out = attributes.down_in_out;
}

// ReadTables reads the tables for the node.
OrtStatus* ReadTables(const KernelInit& init, MoEKernel* kernel) {
  const MoEAttributes& a = kernel->attributes;
  const bool tuned = kernel->x == kernel->experts && a.gate_up_in_out == a.down_in_out;
  const char* const format = !tuned                       ? ""
                             : kernel->x == kMojoBFloat16 ? "bfloat16"
                             : kernel->x == kMojoFloat16  ? "float16"
                                                          : "";
  return kernel->tuned.Read(init, format, a.gate_up_in_out,
                            [&](const MoETableShape& s, size_t tokens, const MojoMoEConfig& config) {
                              MojoMoEArgs call{};
                              SetForm(*kernel, {tokens, s.top_k, s.experts, s.hidden, s.inner, 0}, &call);
                              call.config = config;
                              return MojoMoETakes(&call) != 0;
                            });
}

void Destroy(void* state) { delete static_cast<MoEKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  auto* kernel = new (std::nothrow) MoEKernel{};
  if (kernel == nullptr) return OutOfMemory(init.api);
  kernel->x = ToMojoType(init.types.inputs[kMoEX]);
  kernel->weights = ToMojoType(init.types.inputs[kMoEWeights]);
  kernel->experts = ToMojoType(init.types.inputs[kMoEGateUp]);
  OrtStatus* status = ReadAttributes(init, &kernel->attributes);
  if (status == nullptr) status = kernel->memory.Find(init);
  if (status == nullptr) status = ReadTables(init, kernel);
  if (status != nullptr) {
    Destroy(kernel);
    return status;
  }
  *state = kernel;
  return nullptr;
}

// Nothing here looks at the ids, which the CPU's backend does: they are on the device, and waiting for them
// would stop the stream. The kernels pass over one that is no expert's.
OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const MoEKernel*>(state);
  Shape shapes[kMaxInputs];
  const void* data[kMaxInputs];
  MoEShape shape;
  MojoMoEArgs args{};
  cudaStream_t stream;
  if (OrtStatus* s = ReadMoE(api, context, kernel.attributes, data, shapes, &shape)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kMoE, 0, shapes[kMoEX], &args.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (shape.tokens == 0 || shape.hidden == 0) return nullptr;
  args.x = data[kMoEX];
  args.weights = data[kMoEWeights];
  args.ids = static_cast<const int64_t*>(data[kMoEIds]);
  args.gate_up = data[kMoEGateUp];
  args.down = data[kMoEDown];
  args.gate_up_bias = data[kMoEGateUpBias];
  args.down_bias = data[kMoEDownBias];
  SetForm(kernel, shape, &args);
  kernel.tuned.Choose(&args, [&args](const MojoMoEConfig& config) {
    MojoMoEArgs call = args;
    call.config = config;
    return MojoMoETakes(&call) != 0;
  });
  Scratch scratch(kernel.memory);
  if (OrtStatus* s = scratch.Take(api, context, kMoE, MojoMoEScratch(&args), &args.scratch)) return s;
  return Launched(api, kMoE, MojoCudaMoE(&args, stream));
}

}  // namespace

const Backend kCUDAMoE = {kCUDAProvider, Create, Compute, Destroy, nullptr};

}  // namespace mojo
