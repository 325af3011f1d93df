// RotaryEmbedding on CUDA.

#include "rotary/common/rotary_embedding.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// RotaryKernel is the state of one node.
struct RotaryKernel {
  RotaryEmbeddingAttributes attributes{};
  MojoType type = kMojoFloat32;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* RotaryKernel::Init(const KernelInit& init) {
  type = ToMojoType(init.types.inputs[0]);
  return ReadAttributes(init, &attributes);
}

OrtStatus* RotaryKernel::Compute(const Api& api, OrtKernelContext* context) const {
  MojoRotaryArgs args{};
  cudaStream_t stream;
  RotaryEmbeddingCall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  args.x = call.data[kRotaryEmbeddingX];
  args.cos = call.data[kRotaryEmbeddingCos];
  args.sin = call.data[kRotaryEmbeddingSin];
  const RotaryLayout layout = LayOutRotary(attributes, call.shapes[kRotaryEmbeddingX], call.shapes[kRotaryEmbeddingCos],
                                           call.shapes[kRotaryEmbeddingSin]);
  if (OrtStatus* s = call.Make(0, &args.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (layout.rows == 0) return nullptr;
  args.type = type;
  SetRotary(layout, attributes, &args);
  return Launched(api, kRotaryEmbedding, MojoCudaRotaryEmbedding(&args, 1, stream));
}

}  // namespace

// Not in place: onnxruntime's in-place pairs would apply to every node, and MojoRotaryArgs does not allow it if the
// layouts of X and Y differ.
const Backend kCUDARotaryEmbedding = MakeBackend<RotaryKernel>(kCUDAProvider);

}  // namespace mojo
