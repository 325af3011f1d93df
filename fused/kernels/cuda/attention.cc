// Attention on CUDA.
#include "common/attention.h"

#include <new>

#include "cuda/backends.h"

namespace mojo {
namespace {

// AttentionKernel is the state of one node. Immutable after Create.
struct AttentionKernel {
  AttentionAttributes attributes;
  MojoType type;
  DeviceMemory memory;
};

void Destroy(void* state) { delete static_cast<AttentionKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  auto* kernel = new (std::nothrow) AttentionKernel{};
  if (kernel == nullptr) return OutOfMemory(init.api);
  kernel->type = ToMojoType(init.types.inputs[kAttentionQ]);
  OrtStatus* status = ReadAttributes(init, &kernel->attributes);
  if (status == nullptr) status = kernel->memory.Find(init);
  if (status != nullptr) {
    Destroy(kernel);
    return status;
  }
  *state = kernel;
  return nullptr;
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
OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const AttentionKernel*>(state);
  const AttentionAttributes& attributes = kernel.attributes;
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
  args.type = kernel.type;
  Scratch scratch(kernel.memory);
  if (OrtStatus* s = scratch.Take(api, context, kAttention, MojoAttentionScratch(&args), &args.scratch)) return s;
  return Launched(api, kAttention, MojoCudaAttention(&args, stream));
}

}  // namespace

// Present may be past where both are bound to one buffer; onnxruntime is not asked for that, as on the CPU.
const Backend kCUDAAttention = {kCUDAProvider, Create, Compute, Destroy, nullptr};

}  // namespace mojo
