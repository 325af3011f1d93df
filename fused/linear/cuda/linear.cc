// Linear on CUDA.
#include "linear/cuda/quantized.h"

namespace mojo {
namespace {

// LinearKernel is the state of one node.
struct LinearKernel
    : CUDAKernel<LinearKernel, LinearCall, MojoLinearArgs, MojoCudaLinear, MojoLinearScratch, LinearForm> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = CUDAKernel::Init(init)) return s;
    return CheckCode(init.api, kLinear, attributes.matrix.code, attributes.activations);
  }

  OrtStatus* Fill(LinearCall* call, MojoLinearArgs* args) const {
    args->x = call->data[kLinearX];
    args->bias = call->data[kLinearBias];
    args->rows = call->sizes.A;
    args->type = Input(kLinearX);
    args->rounding = attributes.activations;
    if (OrtStatus* s = GetWeights(*call, PlaceFrom(kLinearCodes), attributes.matrix, &args->weights)) return s;
    return call->Make(0, &args->y);
  }
};

}  // namespace

const Backend kCUDALinear = MakeBackend<LinearKernel>(kCUDAProvider);

}  // namespace mojo
