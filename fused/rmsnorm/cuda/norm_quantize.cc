// NormQuantize on CUDA.
#include "cuda/backends.h"

namespace mojo {
namespace {

// NormQuantizeKernel is the state of one node.
struct NormQuantizeKernel
    : CUDAKernel<NormQuantizeKernel, NormQuantizeCall, MojoNormQuantizeArgs, MojoCudaNormQuantize> {
  OrtStatus* Fill(NormQuantizeCall* call, MojoNormQuantizeArgs* args) const {
    args->x = call->data[kNormQuantizeX];
    args->residual = call->data[kNormQuantizeResidual];
    args->scale = call->data[kNormQuantizeScale];
    args->rows = call->sizes.A;
    args->width = call->sizes.D;
    args->float8 = types->outputs[0] == kF8;
    args->x_type = Input(kNormQuantizeX);
    args->scale_type = Input(kNormQuantizeScale);
    if (OrtStatus* s = call->Make(0, &args->y)) return s;
    if (OrtStatus* s = call->Make(1, &args->y_scale)) return s;
    return call->Make(2, &args->sum);
  }
};

}  // namespace

// sum may take the memory of x or residual. Y has another size.
const Backend kCUDANormQuantize = MakeBackend<NormQuantizeKernel>(kCUDAProvider, MayInPlace<0, 2, 3, 2>);

}  // namespace mojo
