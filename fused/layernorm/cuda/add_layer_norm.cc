// AddLayerNorm on CUDA.
#include "common/attributes.h"
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
  AddLayerNormCall call(api, context, attributes);
  cudaStream_t stream;
  void *to, *sum;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &to)) return s;
  if (OrtStatus* s = call.Make(1, &sum)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  const MojoAddLayerNormArgs args = {call.data[kAddLayerNormX],
                                     call.data[kAddLayerNormResidual],
                                     call.data[kAddLayerNormXBias],
                                     call.data[kAddLayerNormScale],
                                     call.data[kAddLayerNormBias],
                                     to,
                                     sum,
                                     call.sizes.A,
                                     call.sizes.D,
                                     attributes.epsilon,
                                     x,
                                     y};
  return Launched(api, kAddLayerNorm, MojoCudaAddLayerNorm(&args, stream));
}

}  // namespace

// The pairs that MojoAddLayerNormArgs allows: never Y over X's memory, which sum may take.
const Backend kCUDAAddLayerNorm = MakeBackend<LayerKernel>(kCUDAProvider, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
