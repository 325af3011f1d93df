// GatedRMSNorm on CUDA.
#include "cuda/backends.h"

namespace mojo {
namespace {

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

}  // namespace

const Backend kCUDAGatedRMSNorm = MakeBackend<GatedNormKernel>(kCUDAProvider, MayInPlace<0, 0, 1, 0>);

}  // namespace mojo
