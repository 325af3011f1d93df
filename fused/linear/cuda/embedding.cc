// Embedding on CUDA.
#include "linear/cuda/quantized.h"

namespace mojo {
namespace {

// EmbeddingKernel is the state of one node.
struct EmbeddingKernel {
  EmbeddingForm attributes{};

  OrtStatus* Init(const KernelInit& init) { return ReadAttributes(init, &attributes); }
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

// This does not check the ids as the CPU backend does: they are on the device, and waiting for them would stop the
// stream. An invalid id yields a row of NaN.
OrtStatus* EmbeddingKernel::Compute(const Api& api, OrtKernelContext* context) const {
  EmbeddingCall call(api, context, attributes);
  QuantizedTensors tensors{};
  MojoEmbeddingArgs args{};
  cudaStream_t stream;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = GetQuantized(api, call, kEmbedding, PlaceFrom(kEmbeddingCodes), attributes.matrix, &tensors)) {
    return s;
  }
  if (OrtStatus* s = call.Make(0, &args.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  args.count = call.sizes.A;
  if (args.count == 0) return nullptr;
  SetWeights(attributes.matrix, tensors, &args.weights);
  args.ids = call.Get<int64_t>(kEmbeddingIds);
  return Launched(api, kEmbedding, MojoCudaEmbedding(&args, stream));
}

}  // namespace

const Backend kCUDAEmbedding = MakeBackend<EmbeddingKernel>(kCUDAProvider);

}  // namespace mojo
