// RMSNorm, AddRMSNorm, GatedRMSNorm and NormQuantize on CUDA.
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

// GatedNormKernel is the state of one node.
struct GatedNormKernel : CUDAKernel<GatedNormKernel, GatedRMSNormCall, MojoGatedRMSNormArgs, MojoCudaGatedRMSNorm> {
  OrtStatus* Fill(GatedRMSNormCall* call, MojoGatedRMSNormArgs* args) const {
    const auto groups = static_cast<size_t>(attributes.groups);
    args->x = call->data[kGatedRMSNormX];
    args->gate = call->data[kGatedRMSNormGate];
    args->scale = call->data[kGatedRMSNormScale];
    args->rows = call->sizes.A * groups;
    args->width = call->sizes.D / groups;
    args->x_type = Input(kGatedRMSNormX);
    args->gate_type = Input(kGatedRMSNormGate);
    args->scale_type = Input(kGatedRMSNormScale);
    return call->Make(0, &args->y);
  }
};

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

const Backend kCUDARMSNorm = MakeBackend<NormKernel>(kCUDAProvider, MayInPlace<0, 0>);
// The pairs that MojoRMSNormArgs allows: never Y over X's memory if sum takes it.
const Backend kCUDAAddRMSNorm = MakeBackend<AddNormKernel>(kCUDAProvider, MayInPlace<0, 1, 1, 0>);
const Backend kCUDAGatedRMSNorm = MakeBackend<GatedNormKernel>(kCUDAProvider, MayInPlace<0, 0, 1, 0>);
// sum may take the memory of x or residual. Y has another size.
const Backend kCUDANormQuantize = MakeBackend<NormQuantizeKernel>(kCUDAProvider, MayInPlace<0, 2, 3, 2>);

}  // namespace mojo
