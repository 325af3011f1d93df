// RotaryEmbedding on CUDA.
#include <new>

#include "cuda/backends.h"

namespace mojo {
namespace {

static_assert(MOJO_MAX_DIMS >= kMaxRank, "a tensor's leading dims must fit");

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

// SetLayout writes how the tensors lie, and the attributes, into args.
void SetLayout(const RotaryLayout& layout, const RotaryEmbeddingAttributes& attributes, MojoRotaryArgs* args) {
  args->rank = static_cast<int>(layout.rank);
  for (size_t i = 0; i < layout.rank; ++i) {
    args->dims[i] = layout.dims[i];
    args->cos_step[i] = layout.cos_step[i];
    args->sin_step[i] = layout.sin_step[i];
  }
  args->width = layout.width;
  args->first = layout.first;
  args->rotated = layout.rotated;
  args->cos_wide = layout.cos_wide;
  args->sin_wide = layout.sin_wide;
  args->interleaved = attributes.interleaved;
  args->output_interleaved = attributes.output_interleaved;
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
  if (OrtStatus* s = LayOutRotary(api, kernel.attributes, x, cos, sin, &layout)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kRotaryEmbedding, 0, x, &args.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (layout.rows == 0) return nullptr;
  args.type = kernel.type;
  SetLayout(layout, kernel.attributes, &args);
  return Launched(api, kRotaryEmbedding, MojoCudaRotaryEmbedding(&args, 1, stream));
}

}  // namespace

// Not in place: the pairs that onnxruntime is told hold for every node, and where the layouts of X and Y
// differ MojoRotaryArgs does not allow it.
const Backend kCUDARotaryEmbedding = {kCUDAProvider, Create, Compute, Destroy, nullptr};

}  // namespace mojo
