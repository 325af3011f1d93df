// NormRotary on CUDA.
#include "cuda/backends.h"
#include "rotary/common/rotary_embedding.h"

namespace mojo {
namespace {

cudaError_t LaunchOne(const MojoNormRotaryArgs* args, cudaStream_t stream) {
  return MojoCudaNormRotary(args, 1, stream);
}

// NormRotaryKernel is the state of one node.
struct NormRotaryKernel : CUDAKernel<NormRotaryKernel, NormRotaryCall, MojoNormRotaryArgs, LaunchOne> {
  OrtStatus* Fill(NormRotaryCall* call, MojoNormRotaryArgs* args) const {
    const RotaryLayout layout = LayOutRotary(attributes.rotary, call->shapes[kNormRotaryX],
                                             call->shapes[kNormRotaryCos], call->shapes[kNormRotarySin]);
    args->rotary = {layout, attributes.rotary};
    args->rotary.x = call->data[kNormRotaryX];
    args->rotary.cos = call->data[kNormRotaryCos];
    args->rotary.sin = call->data[kNormRotarySin];
    args->rotary.type = Output(0);
    args->scale = call->data[kNormRotaryScale];
    args->epsilon = attributes.epsilon;
    args->scale_after_cast = attributes.scale_after_cast;
    args->x_type = Input(kNormRotaryX);
    args->scale_type = Input(kNormRotaryScale);
    return call->Make(0, &args->rotary.y);
  }
};

}  // namespace

// Not in place, for the reasons of RotaryEmbedding.
const Backend kCUDANormRotary = MakeBackend<NormRotaryKernel>(kCUDAProvider);

}  // namespace mojo
