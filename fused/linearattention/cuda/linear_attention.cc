// LinearAttention on CUDA.
#include "linearattention/common/linear_attention.h"

#include "cuda/backends.h"

namespace mojo {
namespace {

// LinearKernel is the state of one node.
struct LinearKernel : CUDAKernel<LinearKernel, LinearAttentionCall, MojoLinearAttentionArgs, MojoCudaLinearAttention,
                                 MojoLinearAttentionScratch> {
  OrtStatus* Init(const KernelInit& init) {
    types = &init.types;
    if (OrtStatus* s = ReadLinearAttributes(init, &attributes)) return s;
    return memory.Find(init);
  }

  OrtStatus* Fill(LinearAttentionCall* call, MojoLinearAttentionArgs* args) const {
    args->scale = attributes.scale;
    args->l2_norm = attributes.l2_norm;
    args->epsilon = attributes.epsilon;
    args->type = Input(kLinearAttentionQ);
    return ReadLinearAttention(call, args);
  }
};

}  // namespace

const Backend kCUDALinearAttention = MakeBackend<LinearKernel>(kCUDAProvider, MayInPlace<kLinearAttentionPast, 1>);

}  // namespace mojo
