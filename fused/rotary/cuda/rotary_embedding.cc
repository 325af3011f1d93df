// RotaryEmbedding and NormRotary on CUDA.
#include "rotary/common/rotary_embedding.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// LaunchOne launches one tensor of either op.
template <class Args, auto kLaunch>
cudaError_t LaunchOne(const Args* args, cudaStream_t stream) {
  return kLaunch(args, 1, stream);
}

// RotaryKernel is the state of one node.
struct RotaryKernel : CUDAKernel<RotaryKernel, RotaryEmbeddingCall, MojoRotaryArgs,
                                 LaunchOne<MojoRotaryArgs, MojoCudaRotaryEmbedding>> {
  OrtStatus* Fill(RotaryEmbeddingCall* call, MojoRotaryArgs* args) const {
    args->type = Input(kRotaryEmbeddingX);
    return ReadRotary(attributes, kRotaryEmbeddingCos, call, args);
  }
};

// NormRotaryKernel is the state of one node.
struct NormRotaryKernel : CUDAKernel<NormRotaryKernel, NormRotaryCall, MojoNormRotaryArgs,
                                     LaunchOne<MojoNormRotaryArgs, MojoCudaNormRotary>> {
  OrtStatus* Fill(NormRotaryCall* call, MojoNormRotaryArgs* args) const {
    static_cast<RotaryEmbeddingAttributes&>(args->rotary) = attributes.rotary;
    args->rotary.type = Output(0);
    args->scale = call->data[kNormRotaryScale];
    args->epsilon = attributes.epsilon;
    args->scale_after_cast = attributes.scale_after_cast;
    args->x_type = Input(kNormRotaryX);
    args->scale_type = Input(kNormRotaryScale);
    return ReadRotary(attributes.rotary, kNormRotaryCos, call, &args->rotary);
  }
};

}  // namespace

// Not in place: onnxruntime's in-place pairs would apply to every node, and MojoRotaryArgs does not allow it if the
// layouts of X and Y differ.
const Backend kCUDARotaryEmbedding = MakeBackend<RotaryKernel>(kCUDAProvider);
const Backend kCUDANormRotary = MakeBackend<NormRotaryKernel>(kCUDAProvider);

}  // namespace mojo
