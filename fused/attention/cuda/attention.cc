// Attention on CUDA.
#include "attention/common/attention.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// AttentionKernel is the state of one node.
struct AttentionKernel
    : CUDAKernel<AttentionKernel, AttentionCall, MojoAttentionArgs, MojoCudaAttention, MojoAttentionScratch> {
  // past_length is on the device: the kernels clamp it to the room in the cache; the CPU backend refuses larger values.
  OrtStatus* Fill(AttentionCall* call, MojoAttentionArgs* args) const {
    args->on_device = true;
    args->scale = attributes.scale;
    args->causal = attributes.causal;
    args->window = static_cast<size_t>(attributes.window);
    args->softcap = attributes.softcap;
    args->empty_mean = attributes.empty_mean;
    args->cyclic = attributes.cyclic;
    args->type = Input(kAttentionQ);
    return ReadAttention(call, args);
  }
};

}  // namespace

// Present may alias past if both are bound to one buffer; this does not ask onnxruntime for that, as on the CPU.
const Backend kCUDAAttention = MakeBackend<AttentionKernel>(kCUDAProvider);

}  // namespace mojo
