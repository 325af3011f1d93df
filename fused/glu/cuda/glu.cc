// GLU on CUDA.
#include "cuda/backends.h"

namespace mojo {
namespace {

// GateKernel is the state of one node.
struct GateKernel : CUDAKernel<GateKernel, GLUCall, MojoGLUArgs, MojoCudaGLU> {
  OrtStatus* Fill(GLUCall* call, MojoGLUArgs* args) const {
    args->gate = call->data[kGLUGate];
    args->up = call->data[kGLUUp];
    args->count = call->sizes.A;
    args->type = Input(kGLUGate);
    return call->Make(0, &args->y);
  }
};

}  // namespace

const Backend kCUDAGLU = MakeBackend<GateKernel>(kCUDAProvider, MayInPlace<0, 0, 1, 0>);

}  // namespace mojo
