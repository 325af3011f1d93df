// Linear and Embedding on CUDA.
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

const Backend kCUDALinear = MakeBackend<LinearKernel>(kCUDAProvider);
const Backend kCUDAEmbedding = MakeBackend<EmbeddingKernel>(kCUDAProvider);

}  // namespace mojo
