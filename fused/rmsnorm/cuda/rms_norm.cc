// RMSNorm and AddRMSNorm on CUDA.
#include "cuda/backends.h"

namespace mojo {
namespace {

// Fill writes the arguments of both ops, except those that only AddRMSNorm has.
template <class Kernel, class Call>
OrtStatus* Fill(const Kernel& kernel, size_t scale_input, Call* call, MojoRMSNormArgs* args) {
  const Shape &x = call->shapes[0], &scale = call->shapes[scale_input];
  args->rows = x.Product(0, x.rank - scale.rank);
  args->width = scale.Count();
  args->x = call->data[0];
  args->scale = call->data[scale_input];
  args->x_type = kernel.Input(0);
  args->scale_type = kernel.Input(scale_input);
  return call->Make(0, &args->y);
}

// NormKernel is the state of one RMSNorm, AddNormKernel of one AddRMSNorm.
struct NormKernel : CUDAKernel<NormKernel, RMSNormCall, MojoRMSNormArgs, MojoCudaRMSNorm> {
  OrtStatus* Fill(RMSNormCall* call, MojoRMSNormArgs* args) const {
    return mojo::Fill(*this, kRMSNormScale, call, args);
  }
};

struct AddNormKernel : CUDAKernel<AddNormKernel, AddRMSNormCall, MojoRMSNormArgs, MojoCudaAddRMSNorm> {
  OrtStatus* Fill(AddRMSNormCall* call, MojoRMSNormArgs* args) const {
    args->residual = call->data[kAddRMSNormResidual];
    if (OrtStatus* s = mojo::Fill(*this, kAddRMSNormScale, call, args)) return s;
    return call->Make(1, &args->sum);
  }
};

}  // namespace

const Backend kCUDARMSNorm = MakeBackend<NormKernel>(kCUDAProvider, MayInPlace<0, 0>);
// The pairs that MojoRMSNormArgs allows: never Y over X's memory if sum takes it.
const Backend kCUDAAddRMSNorm = MakeBackend<AddNormKernel>(kCUDAProvider, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
