// BiasGELU on CUDA.
#include "common/attributes.h"
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
  BiasGELUCall call(api, context, attributes);
  void* y;
  cudaStream_t stream;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  const MojoActivation activation = ToMojoActivation(attributes.activation);
  const MojoBiasGELUArgs args = {call.data[kBiasGELUX],
                                 call.data[kBiasGELUBias],
                                 y,
                                 call.sizes.A,
                                 call.sizes.D,
                                 activation,
                                 attributes.alpha,
                                 type};
  return Launched(api, kBiasGELU, MojoCudaBiasGELU(&args, stream));
}

}  // namespace

const Backend kCUDABiasGELU = MakeBackend<GeluKernel>(kCUDAProvider, MayInPlace<0, 0>);

}  // namespace mojo
