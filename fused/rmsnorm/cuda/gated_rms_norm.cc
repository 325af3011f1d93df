// GatedRMSNorm on CUDA.
#include "common/attributes.h"
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
  GatedRMSNormCall call(api, context, attributes);
  cudaStream_t stream;
  void* y;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &y)) return s;
  const auto groups = static_cast<size_t>(attributes.groups);
  const size_t rows = call.sizes.A * groups, width = call.sizes.D / groups;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  MojoGatedRMSNormArgs args{};
  args.x = call.data[kGatedRMSNormX];
  args.gate = call.data[kGatedRMSNormGate];
  args.scale = call.data[kGatedRMSNormScale];
  args.y = y;
  args.rows = rows;
  args.width = width;
  args.groups = groups;
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
