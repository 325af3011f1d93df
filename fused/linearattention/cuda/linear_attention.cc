// LinearAttention on CUDA.
#include "linearattention/common/linear_attention.h"

#include "cuda/backends.h"

namespace mojo {
namespace {

// LinearKernel is the state of one node.
struct LinearKernel {
  LinearAttentionAttributes attributes{};
  MojoType type = kMojoFloat32;
  DeviceMemory memory;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* LinearKernel::Init(const KernelInit& init) {
  type = ToMojoType(init.types.inputs[kLinearAttentionQ]);
  if (OrtStatus* s = ReadLinearAttributes(init, &attributes)) return s;
  return memory.Find(init);
}

OrtStatus* LinearKernel::Compute(const Api& api, OrtKernelContext* context) const {
  MojoLinearAttentionArgs args;
  cudaStream_t stream;
  if (OrtStatus* s = ReadLinearAttention(api, context, attributes, &args)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  args.scale = attributes.scale;
  args.l2_norm = attributes.l2_norm;
  args.epsilon = attributes.epsilon;
  args.type = type;
  Scratch scratch(memory);
  const size_t bytes = MojoLinearAttentionScratch(&args);
  if (OrtStatus* s = scratch.Take(api, context, kLinearAttention, bytes, &args.scratch)) return s;
  return Launched(api, kLinearAttention, MojoCudaLinearAttention(&args, stream));
}

}  // namespace

const Backend kCUDALinearAttention = MakeBackend<LinearKernel>(kCUDAProvider, MayInPlace<kLinearAttentionPast, 1>);

}  // namespace mojo
