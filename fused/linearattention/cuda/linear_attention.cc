// LinearAttention and CausalConv on CUDA.
#include "linearattention/common/linear_attention.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// LinearKernel is the state of one node.
struct LinearKernel : CUDAKernel<LinearKernel, LinearAttentionCall, MojoLinearAttentionArgs, MojoCudaLinearAttention,
                                 MojoLinearAttentionScratch> {
  OrtStatus* Fill(LinearAttentionCall* call, MojoLinearAttentionArgs* args) const {
    args->scale = attributes.scale;
    args->l2_norm = attributes.l2_norm;
    args->epsilon = attributes.epsilon;
    args->type = Input(kLinearAttentionQ);
    return ReadLinearAttention(call, args);
  }
};

// ConvKernel is the state of one node.
struct ConvKernel : CUDAKernel<ConvKernel, CausalConvCall, MojoCausalConvArgs, MojoCudaCausalConv> {
  OrtStatus* Fill(CausalConvCall* call, MojoCausalConvArgs* args) const {
    args->x = call->data[kCausalConvX];
    args->weight = call->data[kCausalConvWeight];
    args->bias = call->data[kCausalConvBias];
    args->past = call->data[kCausalConvPast];
    args->batch = call->sizes.B;
    args->channels = call->sizes.C;
    args->tokens = call->sizes.N;
    args->width = call->sizes.W;
    args->kept = call->sizes.L;
    args->silu = attributes.silu;
    args->type = Input(kCausalConvX);
    if (OrtStatus* s = call->Make(0, &args->y)) return s;
    return call->Make(1, &args->present);
  }
};

}  // namespace

const Backend kCUDALinearAttention = MakeBackend<LinearKernel>(kCUDAProvider, MayInPlace<kLinearAttentionPast, 1>);
const Backend kCUDACausalConv = MakeBackend<ConvKernel>(kCUDAProvider, MayInPlace<kCausalConvPast, 1>);

}  // namespace mojo
