// NormRotary on CUDA.

#include "common/rms_norm.h"
#include "common/rotary_embedding.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// NormRotaryKernel is the state of one node.
struct NormRotaryKernel {
  NormRotaryAttributes attributes{};
  MojoType x_type = kMojoFloat32, scale_type = kMojoFloat32, y_type = kMojoFloat32;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* NormRotaryKernel::Init(const KernelInit& init) {
  x_type = ToMojoType(init.types.inputs[kNormRotaryX]);
  scale_type = ToMojoType(init.types.inputs[kNormRotaryScale]);
  y_type = ToMojoType(init.types.outputs[0]);
  return ReadAttributes(init, &attributes);
}

OrtStatus* NormRotaryKernel::Compute(const Api& api, OrtKernelContext* context) const {
  const RotaryEmbeddingAttributes& rotary = attributes.rotary;
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
  args.rotary.type = y_type;
  SetRotary(layout, rotary, &args.rotary);
  args.epsilon = attributes.epsilon;
  args.scale_after_cast = attributes.scale_after_cast;
  args.x_type = x_type;
  args.scale_type = scale_type;
  return Launched(api, kNormRotary, MojoCudaNormRotary(&args, 1, stream));
}

}  // namespace

// Not in place, for the reasons of RotaryEmbedding.
const Backend kCUDANormRotary = MakeBackend<NormRotaryKernel>(kCUDAProvider);

}  // namespace mojo
