// RotaryEmbedding on CUDA.
#include "rotary/common/rotary_embedding.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

cudaError_t LaunchOne(const MojoRotaryArgs* args, cudaStream_t stream) {
  return MojoCudaRotaryEmbedding(args, 1, stream);
}

// RotaryKernel is the state of one node.
struct RotaryKernel : CUDAKernel<RotaryKernel, RotaryEmbeddingCall, MojoRotaryArgs, LaunchOne> {
  OrtStatus* Fill(RotaryEmbeddingCall* call, MojoRotaryArgs* args) const {
    static_cast<RotaryLayout&>(*args) =
        LayOutRotary(attributes, call->shapes[kRotaryEmbeddingX], call->shapes[kRotaryEmbeddingCos],
                     call->shapes[kRotaryEmbeddingSin]);
    args->x = call->data[kRotaryEmbeddingX];
    args->cos = call->data[kRotaryEmbeddingCos];
    args->sin = call->data[kRotaryEmbeddingSin];
    args->type = Input(kRotaryEmbeddingX);
    return call->Make(0, &args->y);
  }
};

}  // namespace

// Not in place: onnxruntime's in-place pairs would apply to every node, and MojoRotaryArgs does not allow it if the
// layouts of X and Y differ.
const Backend kCUDARotaryEmbedding = MakeBackend<RotaryKernel>(kCUDAProvider);

}  // namespace mojo
