// Embedding on CUDA.
#include "common/linear.h"
#include "cuda/quantized.h"

namespace mojo {
namespace {

// EmbeddingKernel is the state of one node.
struct EmbeddingKernel {
  QuantizedAttributes attributes{};

  OrtStatus* Init(const KernelInit& init) { return ReadAttributes(init, &attributes); }
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

// Nothing here looks at the ids, which the CPU's backend does: they are on the device, and waiting for them would stop
// the stream. A row of NaN stands for one that there is not.
OrtStatus* EmbeddingKernel::Compute(const Api& api, OrtKernelContext* context) const {
  Shape ids, y;
  const void* data;
  void* to;
  QuantizedTensors tensors{};
  MojoEmbeddingArgs args{};
  cudaStream_t stream;
  if (OrtStatus* s = ReadInput(api, context, kEmbedding, kEmbeddingIds, &data, &ids)) return s;
  if (OrtStatus* s = ReadQuantized(api, context, kEmbedding, kEmbeddingCodes, attributes, &tensors)) return s;
  if (OrtStatus* s = EmbeddingShape(api, ids, attributes, &y)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kEmbedding, 0, y, &to)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  args.count = ids.Count();
  if (args.count == 0) return nullptr;
  SetWeights(attributes, tensors, &args.weights);
  args.ids = static_cast<const int64_t*>(data);
  args.y = static_cast<float*>(to);
  return Launched(api, kEmbedding, MojoCudaEmbedding(&args, stream));
}

}  // namespace

const Backend kCUDAEmbedding = MakeBackend<EmbeddingKernel>(kCUDAProvider);

}  // namespace mojo
