// GatedRMSNorm on CUDA.
#include "common/gated_rms_norm.h"

#include "cuda/backends.h"

namespace mojo {
namespace {

// GatedNormKernel is the state of one node.
struct GatedNormKernel {
  GatedRMSNormAttributes attributes{};
  MojoType x = kMojoFloat32, gate = kMojoFloat32, scale = kMojoFloat32;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* GatedNormKernel::Init(const KernelInit& init) {
  x = ToMojoType(init.types.inputs[kGatedRMSNormX]);
  gate = ToMojoType(init.types.inputs[kGatedRMSNormGate]);
  scale = ToMojoType(init.types.inputs[kGatedRMSNormScale]);
  return ReadAttributes(init, &attributes);
}

OrtStatus* GatedNormKernel::Compute(const Api& api, OrtKernelContext* context) const {
  const GatedRMSNormAttributes& a = attributes;
  GatedRMSNormTensors t;
  cudaStream_t stream;
  if (OrtStatus* s = ReadGatedRMSNorm(api, context, a, &t)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  const MojoGatedRMSNormArgs args = {t.x,     t.gate,   t.scale,      t.y,       t.rows,
                                     t.width, a.groups, a.gate_first, a.epsilon, a.scale_after_cast,
                                     x,       gate,     scale};
  return Launched(api, kGatedRMSNorm, MojoCudaGatedRMSNorm(&args, stream));
}

}  // namespace

const Backend kCUDAGatedRMSNorm = MakeBackend<GatedNormKernel>(kCUDAProvider, MayInPlace<0, 0, 1, 0>);

}  // namespace mojo
