// RotaryEmbedding on CUDA.
#include <new>

#include "common/rotary_embedding.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// RotaryKernel is the state of one node. Immutable after Create.
struct RotaryKernel {
  RotaryEmbeddingAttributes attributes;
  MojoType type;
};

void Destroy(void* state) { delete static_cast<RotaryKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  RotaryEmbeddingAttributes attributes{};
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  auto* kernel = new (std::nothrow) RotaryKernel{attributes, ToMojoType(init.types.inputs[0])};
  if (kernel == nullptr) return OutOfMemory(init.api);
  *state = kernel;
  return nullptr;
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const RotaryKernel*>(state);
  MojoRotaryArgs args{};
  cudaStream_t stream;
  Shape x, cos, sin;
  RotaryLayout layout;
  if (OrtStatus* s = ReadInput(api, context, kRotaryEmbedding, 0, &args.x, &x)) return s;
  if (OrtStatus* s = ReadInput(api, context, kRotaryEmbedding, 1, &args.cos, &cos)) return s;
  if (OrtStatus* s = ReadInput(api, context, kRotaryEmbedding, 2, &args.sin, &sin)) return s;
  if (OrtStatus* s = LayOutRotary(api, kRotaryEmbedding, kernel.attributes, x, cos, sin, &layout)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kRotaryEmbedding, 0, x, &args.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (layout.rows == 0) return nullptr;
  args.type = kernel.type;
  SetRotary(layout, kernel.attributes, &args);
  return Launched(api, kRotaryEmbedding, MojoCudaRotaryEmbedding(&args, 1, stream));
}

}  // namespace

// Not in place: the pairs that onnxruntime is told hold for every node, and where the layouts of X and Y
// differ MojoRotaryArgs does not allow it.
const Backend kCUDARotaryEmbedding = {kCUDAProvider, Create, Compute, Destroy, nullptr};

}  // namespace mojo
