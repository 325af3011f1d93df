// QMoE on CUDA.
#include <initializer_list>
#include <new>

#include "common/qmoe.h"
#include "cuda/coded.h"
#include "cuda/moe_tuned.h"

namespace mojo {
namespace {

// QMoEKernel is the state of one node. Immutable after Create.
struct QMoEKernel {
  QMoEAttributes attributes;
  MojoType x, weights;
  DeviceMemory memory;
  TunedMoE tuned;
};

// SetForm writes the node's attributes and types, and the sizes, into args.
void SetForm(const QMoEKernel& kernel, const MoEShape& shape, const QMoEInputs& in, MojoQMoEArgs* args) {
  const QMoEAttributes& attributes = kernel.attributes;
  MojoMoEArgs& moe = args->moe;
  SetExperts(shape, attributes.gate, attributes.packing, &moe);
  moe.x_type = kernel.x;
  moe.weights_type = kernel.weights;
  moe.expert_type = kMojoFloat32;
  SetWeights(attributes.gate_up, in.gate_up, &args->gate_up);
  SetWeights(attributes.down, in.down, &args->down);
  args->rounding = ToMojoRounding(attributes.activations);
}

// FormatOf names the format that there are tables for; it is empty for others.
const char* FormatOf(const QMoEKernel& kernel) {
  const QMoEAttributes& a = kernel.attributes;
  if (a.gate_up.code != a.down.code || kernel.x != kMojoBFloat16) return "";
  if (a.gate_up.code == Code::kE4m3 && a.activations == Activations::kFp8) return "fp8";
  return a.gate_up.code == Code::kE2m1 && a.activations == Activations::kFloat ? "mxfp4" : "";
}

// ReadTables reads the tables for the node.
OrtStatus* ReadTables(const KernelInit& init, QMoEKernel* kernel) {
  return kernel->tuned.Read(init, FormatOf(*kernel), false,
                            [&](const MoETableShape& s, size_t tokens, const MojoMoEConfig& config) {
                              const QMoEAttributes& a = kernel->attributes;
                              if (s.hidden != a.gate_up.k || s.inner != a.down.k) return true;  // other experts'
                              MojoQMoEArgs call{};
                              SetForm(*kernel, {tokens, s.top_k, s.experts, s.hidden, s.inner, 0}, {}, &call);
                              call.moe.config = config;
                              return MojoQMoETakes(&call) != 0;
                            });
}

void Destroy(void* state) { delete static_cast<QMoEKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  auto* kernel = new (std::nothrow) QMoEKernel{};
  if (kernel == nullptr) return OutOfMemory(init.api);
  kernel->x = ToMojoType(init.types.inputs[kQMoEX]);
  kernel->weights = ToMojoType(init.types.inputs[kQMoEWeights]);
  OrtStatus* status = ReadAttributes(init, &kernel->attributes);
  const QMoEAttributes& a = kernel->attributes;
  for (const Code code : {a.gate_up.code, a.down.code}) {
    if (status == nullptr) status = CheckCode(init.api, kQMoE, code, a.activations, ToMojoPacking(a.packing));
  }
  if (status == nullptr) status = kernel->memory.Find(init);
  if (status == nullptr) status = ReadTables(init, kernel);
  if (status != nullptr) {
    Destroy(kernel);
    return status;
  }
  *state = kernel;
  return nullptr;
}

// Nothing here looks at the ids, as in MoE: the kernels pass over one that is no expert's.
OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const QMoEKernel*>(state);
  const QMoEAttributes& attributes = kernel.attributes;
  QMoEInputs in{};
  Shape x;
  MoEShape shape;
  MojoQMoEArgs args{};
  MojoMoEArgs& moe = args.moe;
  cudaStream_t stream;
  if (OrtStatus* s = ReadQMoE(api, context, attributes, &in, &x, &shape)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kQMoE, 0, x, &moe.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (shape.tokens == 0) return nullptr;
  moe.x = in.x;
  moe.weights = in.weights;
  moe.ids = in.ids;
  moe.gate_up_bias = in.gate_up_bias;
  moe.down_bias = in.down_bias;
  SetForm(kernel, shape, in, &args);
  kernel.tuned.Choose(&moe, [&args](const MojoMoEConfig& config) {
    MojoQMoEArgs call = args;
    call.moe.config = config;
    return MojoQMoETakes(&call) != 0;
  });
  Scratch scratch(kernel.memory);
  if (OrtStatus* s = scratch.Take(api, context, kQMoE, MojoQMoEScratch(&args), &moe.scratch)) return s;
  return Launched(api, kQMoE, MojoCudaQMoE(&args, stream));
}

}  // namespace

const Backend kCUDAQMoE = {kCUDAProvider, Create, Compute, Destroy, nullptr};

}  // namespace mojo
