// NormRotary on CUDA.
#include <new>

#include "common/norm_rotary.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// NormRotaryKernel is the state of one node. Immutable after Create.
struct NormRotaryKernel {
  NormRotaryAttributes attributes;
  MojoType x, scale, y;
};

void Destroy(void* state) { delete static_cast<NormRotaryKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  NormRotaryAttributes attributes{};
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  auto* kernel = new (std::nothrow)
      NormRotaryKernel{attributes, ToMojoType(init.types.inputs[kNormRotaryX]),
                       ToMojoType(init.types.inputs[kNormRotaryScale]), ToMojoType(init.types.outputs[0])};
  if (kernel == nullptr) return OutOfMemory(init.api);
  *state = kernel;
  return nullptr;
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const NormRotaryKernel*>(state);
  const RotaryEmbeddingAttributes& rotary = kernel.attributes.rotary;
  MojoNormRotaryArgs args{};
  cudaStream_t stream;
  Shape x, scale, cos, sin;
  RotaryLayout layout;
  if (OrtStatus* s = ReadInput(api, context, kNormRotary, kNormRotaryX, &args.rotary.x, &x)) return s;
  if (OrtStatus* s = ReadInput(api, context, kNormRotary, kNormRotaryScale, &args.scale, &scale)) return s;
  if (OrtStatus* s = ReadInput(api, context, kNormRotary, kNormRotaryCos, &args.rotary.cos, &cos)) return s;
  if (OrtStatus* s = ReadInput(api, context, kNormRotary, kNormRotarySin, &args.rotary.sin, &sin)) return s;
  if (OrtStatus* s = LayOutRotary(api, kNormRotary, rotary, x, cos, sin, &layout)) return s;
  if (OrtStatus* s = CheckScale(api, kNormRotary, x, -1, scale)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kNormRotary, 0, x, &args.rotary.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (layout.rows == 0) return nullptr;
  args.rotary.type = kernel.y;
  SetRotary(layout, rotary, &args.rotary);
  args.epsilon = kernel.attributes.epsilon;
  args.scale_after_cast = kernel.attributes.scale_after_cast;
  args.x_type = kernel.x;
  args.scale_type = kernel.scale;
  return Launched(api, kNormRotary, MojoCudaNormRotary(&args, 1, stream));
}

}  // namespace

// Not in place, for the reasons of RotaryEmbedding.
const Backend kCUDANormRotary = {kCUDAProvider, Create, Compute, Destroy, nullptr};

}  // namespace mojo
