// AddLayerNorm on CUDA.
#include "common/add_layer_norm.h"

#include "cuda/backends.h"

namespace mojo {
namespace {

// LayerKernel is the state of one node.
struct LayerKernel {
  AddLayerNormAttributes attributes{};
  MojoType x = kMojoFloat32, y = kMojoFloat32;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* LayerKernel::Init(const KernelInit& init) {
  x = ToMojoType(init.types.inputs[0]);
  y = ToMojoType(init.types.outputs[0]);
  return ReadAttributes(init, &attributes);
}

OrtStatus* LayerKernel::Compute(const Api& api, OrtKernelContext* context) const {
  AddLayerNormTensors t;
  cudaStream_t stream;
  if (OrtStatus* s = ReadAddLayerNorm(api, context, &t)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  const MojoAddLayerNormArgs args = {t.x,    t.residual, t.x_bias,           t.scale, t.bias, t.y, t.sum,
                                     t.rows, t.width,    attributes.epsilon, x,       y};
  return Launched(api, kAddLayerNorm, MojoCudaAddLayerNorm(&args, stream));
}

}  // namespace

// The pairs that MojoAddLayerNormArgs allows: never Y over X's memory, which sum may take.
const Backend kCUDAAddLayerNorm = MakeBackend<LayerKernel>(kCUDAProvider, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
