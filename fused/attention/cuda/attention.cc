// Attention on CUDA.
#include "attention/common/attention.h"

#include "cuda/backends.h"

namespace mojo {
namespace {

// AttentionKernel is the state of one node.
struct AttentionKernel {
  AttentionAttributes attributes{};
  MojoType type = kMojoFloat32;
  DeviceMemory memory;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* AttentionKernel::Init(const KernelInit& init) {
  type = ToMojoType(init.types.inputs[kAttentionQ]);
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  return memory.Find(init);
}

// past_length is on the device: the kernels clamp it to the room in the cache; the CPU backend refuses larger values.
OrtStatus* AttentionKernel::Compute(const Api& api, OrtKernelContext* context) const {
  MojoAttentionArgs args;
  cudaStream_t stream;
  args.on_device = true;
  if (OrtStatus* s = ReadAttention(api, context, attributes, &args)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  args.scale = attributes.scale;
  args.causal = attributes.causal;
  args.window = static_cast<size_t>(attributes.window);
  args.softcap = attributes.softcap;
  args.empty_mean = attributes.empty_mean;
  args.cyclic = attributes.cyclic;
  args.type = type;
  Scratch scratch(memory);
  if (OrtStatus* s = scratch.Take(api, context, kAttention, MojoAttentionScratch(&args), &args.scratch)) return s;
  return Launched(api, kAttention, MojoCudaAttention(&args, stream));
}

}  // namespace

// Present may alias past if both are bound to one buffer; this does not ask onnxruntime for that, as on the CPU.
const Backend kCUDAAttention = MakeBackend<AttentionKernel>(kCUDAProvider);

}  // namespace mojo
