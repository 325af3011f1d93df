// LatentAttention on CUDA.
#include "common/latent_attention.h"

#include "cuda/backends.h"

namespace mojo {
namespace {

// LatentKernel is the state of one node.
struct LatentKernel {
  LatentAttributes attributes{};
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

// SetTensors writes the tensors and their sizes into args.
void SetTensors(const LatentTensors& t, MojoLatentAttentionArgs* args) {
  args->q = t.q;
  args->q_steps = ToMojoSteps(t.q_steps);
  args->c = t.c;
  args->k_pe = t.k_pe;
  args->w = t.w;
  args->past_latents = t.past_latents;
  args->past_length = t.past_lengths;
  args->one_length = t.one_length;
  args->key_valid = t.key_valid;
  args->valid_step = t.valid_step;
  args->y = t.y;
  args->y_steps = ToMojoSteps(t.y_steps);
  args->present = t.present;
  args->batch = t.batch;
  args->heads = t.heads;
  args->queries = t.queries;
  args->added = t.added;
  args->past = t.past;
  args->room = t.room;
  args->nope = t.nope;
  args->rotated = t.rotated;
  args->latent = t.latent;
  args->value_width = t.value_width;
}

// The lengths of past_length are on the device: the kernels clamp them to what there is room for, where the CPU's
// backend refuses others.
OrtStatus* LatentKernel::Compute(const Api& api, OrtKernelContext* context) const {
  LatentTensors tensors;
  cudaStream_t stream;
  tensors.on_device = true;
  if (OrtStatus* s = ReadLatentAttention(api, context, attributes, &tensors)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  MojoLatentAttentionArgs args{};
  SetTensors(tensors, &args);
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

// Present may be past where both are bound to one buffer; onnxruntime is not asked for that, as on the CPU.
const Backend kCUDALatentAttention = MakeBackend<LatentKernel>(kCUDAProvider);

}  // namespace mojo
