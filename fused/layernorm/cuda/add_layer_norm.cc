// AddLayerNorm on CUDA.
#include "cuda/backends.h"

namespace mojo {
namespace {

// LayerKernel is the state of one node.
struct LayerKernel : CUDAKernel<LayerKernel, AddLayerNormCall, MojoAddLayerNormArgs, MojoCudaAddLayerNorm> {
  OrtStatus* Fill(AddLayerNormCall* call, MojoAddLayerNormArgs* args) const {
    args->x = call->data[kAddLayerNormX];
    args->residual = call->data[kAddLayerNormResidual];
    args->x_bias = call->data[kAddLayerNormXBias];
    args->scale = call->data[kAddLayerNormScale];
    args->bias = call->data[kAddLayerNormBias];
    args->rows = call->sizes.A;
    args->width = call->sizes.D;
    args->x_type = Input(kAddLayerNormX);
    args->y_type = Output(0);
    if (OrtStatus* s = call->Make(0, &args->y)) return s;
    return call->Make(1, &args->sum);
  }
};

}  // namespace

// The pairs that MojoAddLayerNormArgs allows: never Y over X's memory, which sum may take.
const Backend kCUDAAddLayerNorm = MakeBackend<LayerKernel>(kCUDAProvider, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
