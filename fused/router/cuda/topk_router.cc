// TopKRouter on CUDA.
#include "cuda/backends.h"

namespace mojo {
namespace {

// RouterKernel is the state of one node.
struct RouterKernel
    : CUDAKernel<RouterKernel, TopKRouterCall, MojoTopKRouterArgs, MojoCudaTopKRouter, MojoTopKRouterScratch> {
  OrtStatus* Fill(TopKRouterCall* call, MojoTopKRouterArgs* args) const {
    args->logits = call->data[kTopKRouterLogits];
    args->bias = call->data[kTopKRouterCorrectionBias];
    args->rows = call->sizes.A;
    args->experts = call->sizes.E;
    args->logits_type = Input(kTopKRouterLogits);
    args->bias_type = Input(kTopKRouterCorrectionBias);
    if (OrtStatus* s = call->Make(0, &args->weights)) return s;
    return call->Make(1, &args->ids);
  }
};

}  // namespace

const Backend kCUDATopKRouter = MakeBackend<RouterKernel>(kCUDAProvider);

}  // namespace mojo
