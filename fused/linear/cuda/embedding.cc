// Embedding on CUDA.
#include "linear/cuda/quantized.h"

namespace mojo {
namespace {

// EmbeddingKernel is the state of one node.
struct EmbeddingKernel
    : CUDAKernel<EmbeddingKernel, EmbeddingCall, MojoEmbeddingArgs, MojoCudaEmbedding, nullptr, EmbeddingForm> {
  // This does not check the ids as the CPU backend does: they are on the device, and waiting for them would stop the
  // stream. An invalid id yields a row of NaN.
  OrtStatus* Fill(EmbeddingCall* call, MojoEmbeddingArgs* args) const {
    args->ids = call->Get<int64_t>(kEmbeddingIds);
    args->count = call->sizes.A;
    if (OrtStatus* s = GetWeights(*call, PlaceFrom(kEmbeddingCodes), attributes.matrix, &args->weights)) return s;
    return call->Make(0, &args->y);
  }
};

}  // namespace

const Backend kCUDAEmbedding = MakeBackend<EmbeddingKernel>(kCUDAProvider);

}  // namespace mojo
