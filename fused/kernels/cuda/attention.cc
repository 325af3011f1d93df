// Attention on CUDA.
#include "common/attention.h"

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

// SetTensors writes the tensors and their sizes into args.
void SetTensors(const AttentionTensors& t, MojoAttentionArgs* args) {
  args->q = t.q;
  args->k = t.k;
  args->v = t.v;
  args->q_steps = ToMojoSteps(t.q_steps);
  args->k_steps = ToMojoSteps(t.k_steps);
  args->v_steps = ToMojoSteps(t.v_steps);
  args->past_key = t.past_key;
  args->past_value = t.past_value;
  args->past_length = t.past_lengths;
  args->one_length = t.one_length;
  args->key_valid = t.key_valid;
  args->valid_step = t.valid_step;
  args->bias = t.bias;
  for (int i = 0; i < 4; ++i) args->bias_steps[i] = t.bias_steps[i];
  args->bias_keys = t.bias_keys;
  args->sink = t.sink;
  args->y = t.y;
  args->y_steps = ToMojoSteps(t.y_steps);
  args->present_key = t.present_key;
  args->present_value = t.present_value;
  args->batch = t.batch;
  args->heads = t.heads;
  args->key_heads = t.key_heads;
  args->queries = t.queries;
  args->added = t.added;
  args->past = t.past;
  args->room = t.room;
  args->width = t.width;
  args->value_width = t.value_width;
}

// The lengths of past_length are on the device: the kernels clamp them to what there is room for, where the CPU's
// backend refuses others.
OrtStatus* AttentionKernel::Compute(const Api& api, OrtKernelContext* context) const {
  AttentionTensors tensors;
  cudaStream_t stream;
  tensors.on_device = true;
  if (OrtStatus* s = ReadAttention(api, context, attributes, &tensors)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  MojoAttentionArgs args{};
  SetTensors(tensors, &args);
  args.scale = attributes.scale;
  args.causal = attributes.causal;
  args.window = attributes.window;
  args.softcap = attributes.softcap;
  args.empty_mean = attributes.empty_mean;
  args.cyclic = attributes.cyclic;
  args.type = type;
  Scratch scratch(memory);
  if (OrtStatus* s = scratch.Take(api, context, kAttention, MojoAttentionScratch(&args), &args.scratch)) return s;
  return Launched(api, kAttention, MojoCudaAttention(&args, stream));
}

}  // namespace

// Present may be past where both are bound to one buffer; onnxruntime is not asked for that, as on the CPU.
const Backend kCUDAAttention = MakeBackend<AttentionKernel>(kCUDAProvider);

}  // namespace mojo
