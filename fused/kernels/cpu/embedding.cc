// Embedding on the CPU.
#include "common/linear.h"
#include "cpu/backends.h"
#include "cpu/quantized_weights.h"

namespace mojo {
namespace {

// EmbeddingKernel is the state of one node.
struct EmbeddingKernel {
  QuantizedAttributes attributes{};

  OrtStatus* Init(const KernelInit& init) { return ReadAttributes(init, &attributes); }
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

// Work is what the tasks of one run share.
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
  Shape ids, y;
  const void* data;
  QuantizedTensors tensors{};
  if (OrtStatus* s = ReadInput(api, context, kEmbedding, kEmbeddingIds, &data, &ids)) return s;
  if (OrtStatus* s = ReadQuantized(api, context, kEmbedding, kEmbeddingCodes, attributes, &tensors)) return s;
  if (OrtStatus* s = EmbeddingShape(api, ids, attributes, &y)) return s;
  void* to;
  if (OrtStatus* s = MakeOutput(api, context, kEmbedding, 0, y, &to)) return s;
  const Work work{ToWeights(attributes, tensors), static_cast<const int64_t*>(data), static_cast<float*>(to)};
  const auto n = static_cast<int64_t>(attributes.n);
  const size_t count = ids.Count();
  for (size_t i = 0; i < count; ++i) {
    if (work.ids[i] < -n || work.ids[i] >= n) {
      return Errorf(api, "mojo.%s: element %zu of ids is %lld; it must be from %lld to %lld", kEmbedding.name, i,
                    static_cast<long long>(work.ids[i]), static_cast<long long>(-n), static_cast<long long>(n - 1));
    }
  }
  return count == 0 ? nullptr : RunInTasks(api, context, DecodeRows, work, count, attributes.k);
}

}  // namespace

const Backend kCPUEmbedding = MakeBackend<EmbeddingKernel>(nullptr);

}  // namespace mojo
