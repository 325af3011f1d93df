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
  MojoGatedRMSNormArgs args{};
  args.x = t.x;
  args.gate = t.gate;
  args.scale = t.scale;
  args.y = t.y;
  args.rows = t.rows;
  args.width = t.width;
  args.groups = static_cast<size_t>(a.groups);
  args.gate_first = a.gate_first;
  args.epsilon = a.epsilon;
  args.scale_after_cast = a.scale_after_cast;
  args.x_type = x;
  args.gate_type = gate;
  args.scale_type = scale;
  return Launched(api, kGatedRMSNorm, MojoCudaGatedRMSNorm(&args, stream));
}

}  // namespace

const Backend kCUDAGatedRMSNorm = MakeBackend<GatedNormKernel>(kCUDAProvider, MayInPlace<0, 0, 1, 0>);

}  // namespace mojo
