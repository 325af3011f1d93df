// Embedding on the CPU.
#include "cpu/backends.h"
#include "linear/cpu/quantized_weights.h"

namespace mojo {
namespace {

// EmbeddingKernel is the state of one node.
struct EmbeddingKernel {
  EmbeddingForm attributes{};

  OrtStatus* Init(const KernelInit& init) { return ReadAttributes(init, &attributes); }
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

// Work is the shared state of one run's tasks.
struct Work {
  QuantizedWeights weights;
  const int64_t* ids;
  float* y;
};

void DecodeRows(const Work& work, size_t begin, size_t end) {
  const QuantizedWeights& w = work.weights;
  for (size_t i = begin; i < end; ++i) {
    const int64_t id = work.ids[i];
    TheLinear()->decode(w, static_cast<size_t>(id < 0 ? id + static_cast<int64_t>(w.n) : id), work.y + i * w.k);
  }
}

OrtStatus* EmbeddingKernel::Compute(const Api& api, OrtKernelContext* context) const {
  EmbeddingCall call(api, context, attributes);
  QuantizedTensors tensors{};
  float* to;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = GetQuantized(call, PlaceFrom(kEmbeddingCodes), attributes.matrix, &tensors)) return s;
  if (OrtStatus* s = call.Make(0, &to)) return s;
  const Work work{ToWeights(attributes.matrix, tensors), call.Get<int64_t>(kEmbeddingIds), to};
  const int64_t n = attributes.n;
  const size_t count = call.sizes.A;
  for (size_t i = 0; i < count; ++i) {
    if (work.ids[i] < -n || work.ids[i] >= n) {
      return Errorf(api, "mojo.%s: element %zu of ids is %lld; it must be from %lld to %lld", kEmbedding.name, i,
                    static_cast<long long>(work.ids[i]), static_cast<long long>(-n), static_cast<long long>(n - 1));
    }
  }
  return count == 0 ? nullptr : RunInTasks(api, context, DecodeRows, work, count, attributes.matrix.k);
}

}  // namespace

const Backend kCPUEmbedding = MakeBackend<EmbeddingKernel>(nullptr);

}  // namespace mojo
