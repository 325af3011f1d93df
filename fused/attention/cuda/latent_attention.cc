// LatentAttention on CUDA.
#include "attention/common/attention.h"

#include "cuda/backends.h"

namespace mojo {
namespace {

// LatentKernel is the state of one node.
struct LatentKernel {
  LatentAttentionAttributes attributes{};
  MojoType type = kMojoFloat32;
  DeviceMemory memory;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* LatentKernel::Init(const KernelInit& init) {
  type = ToMojoType(init.types.inputs[kLatentAttentionQ]);
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  return memory.Find(init);
}

// past_length is on the device: the kernels clamp it to the room in the cache; the CPU backend refuses larger values.
OrtStatus* LatentKernel::Compute(const Api& api, OrtKernelContext* context) const {
  MojoLatentAttentionArgs args;
  cudaStream_t stream;
  args.on_device = true;
  if (OrtStatus* s = ReadLatentAttention(api, context, attributes, &args)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  args.scale = attributes.attention.scale;
  args.causal = attributes.attention.causal;
  args.empty_mean = attributes.attention.empty_mean;
  args.w_out_in = attributes.w_out_in;
  args.type = type;
  Scratch scratch(memory);
  const size_t bytes = MojoLatentAttentionScratch(&args);
  if (OrtStatus* s = scratch.Take(api, context, kLatentAttention, bytes, &args.scratch)) return s;
  return Launched(api, kLatentAttention, MojoCudaLatentAttention(&args, stream));
}

}  // namespace

// Present may alias past if both are bound to one buffer; this does not ask onnxruntime for that, as on the CPU.
const Backend kCUDALatentAttention = MakeBackend<LatentKernel>(kCUDAProvider);

}  // namespace mojo
