// BiasGELU on CUDA.
#include "common/bias_gelu.h"

#include "cuda/backends.h"

namespace mojo {
namespace {

// GeluKernel is the state of one node.
struct GeluKernel {
  BiasGELUAttributes attributes{};
  MojoType type = kMojoFloat32;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* GeluKernel::Init(const KernelInit& init) {
  type = ToMojoType(init.types.inputs[0]);
  return ReadAttributes(init, &attributes);
}

OrtStatus* GeluKernel::Compute(const Api& api, OrtKernelContext* context) const {
  BiasGELUTensors t;
  cudaStream_t stream;
  if (OrtStatus* s = ReadBiasGELU(api, context, &t)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  const MojoActivation activation = ToMojoActivation(attributes.activation);
  const MojoBiasGELUArgs args = {t.x, t.bias, t.y, t.rows, t.width, activation, attributes.alpha, type};
  return Launched(api, kBiasGELU, MojoCudaBiasGELU(&args, stream));
}

}  // namespace

const Backend kCUDABiasGELU = MakeBackend<GeluKernel>(kCUDAProvider, MayInPlace<0, 0>);

}  // namespace mojo
