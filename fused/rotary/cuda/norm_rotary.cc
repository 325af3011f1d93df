// NormRotary on CUDA.

#include "cuda/backends.h"
#include "rotary/common/rotary_embedding.h"

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
  NormRotaryCall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  args.scale = call.data[kNormRotaryScale];
  args.rotary.x = call.data[kNormRotaryX];
  args.rotary.cos = call.data[kNormRotaryCos];
  args.rotary.sin = call.data[kNormRotarySin];
  const RotaryLayout layout =
      LayOutRotary(rotary, call.shapes[kNormRotaryX], call.shapes[kNormRotaryCos], call.shapes[kNormRotarySin]);
  if (OrtStatus* s = call.Make(0, &args.rotary.y)) return s;
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
