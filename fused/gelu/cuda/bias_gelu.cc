// BiasGELU on CUDA.
#include "cuda/backends.h"

namespace mojo {
namespace {

// GeluKernel is the state of one node.
struct GeluKernel : CUDAKernel<GeluKernel, BiasGELUCall, MojoBiasGELUArgs, MojoCudaBiasGELU> {
  OrtStatus* Fill(BiasGELUCall* call, MojoBiasGELUArgs* args) const {
    args->x = call->data[kBiasGELUX];
    args->bias = call->data[kBiasGELUBias];
    args->rows = call->sizes.A;
    args->width = call->sizes.D;
    args->type = Input(kBiasGELUX);
    return call->Make(0, &args->y);
  }
};

}  // namespace

const Backend kCUDABiasGELU = MakeBackend<GeluKernel>(kCUDAProvider, MayInPlace<0, 0>);

}  // namespace mojo
