// CausalConv on CUDA.
#include "cuda/backends.h"

namespace mojo {
namespace {

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

const Backend kCUDACausalConv = MakeBackend<ConvKernel>(kCUDAProvider, MayInPlace<kCausalConvPast, 1>);

}  // namespace mojo
