// LatentAttention on CUDA.
#include "attention/common/attention.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// LatentKernel is the state of one node.
struct LatentKernel : CUDAKernel<LatentKernel, LatentAttentionCall, MojoLatentAttentionArgs, MojoCudaLatentAttention,
                                 MojoLatentAttentionScratch> {
  // past_length is on the device: the kernels clamp it to the room in the cache; the CPU backend refuses larger values.
  OrtStatus* Fill(LatentAttentionCall* call, MojoLatentAttentionArgs* args) const {
    args->on_device = true;
    args->scale = attributes.attention.scale;
    args->causal = attributes.attention.causal;
    args->empty_mean = attributes.attention.empty_mean;
    args->w_out_in = attributes.w_out_in;
    args->type = Input(kLatentAttentionQ);
    return ReadLatentAttention(call, args);
  }
};

}  // namespace

// Present may alias past if both are bound to one buffer; this does not ask onnxruntime for that, as on the CPU.
const Backend kCUDALatentAttention = MakeBackend<LatentKernel>(kCUDAProvider);

}  // namespace mojo
