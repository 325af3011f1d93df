// RMSNorm and AddRMSNorm on CUDA.

#include "common/rms_norm.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// NormKernel is the state of one node.
template <bool kAdd>
struct NormKernel {
  RMSNormAttributes attributes{};
  MojoType x_type = kMojoFloat32, scale_type = kMojoFloat32;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

template <bool kAdd>
OrtStatus* NormKernel<kAdd>::Init(const KernelInit& init) {
  x_type = ToMojoType(init.types.inputs[0]);
  scale_type = ToMojoType(init.types.inputs[kAdd ? 2 : 1]);
  return ReadAttributes(init, &attributes);
}

template <bool kAdd>
OrtStatus* NormKernel<kAdd>::Compute(const Api& api, OrtKernelContext* context) const {
  const OpDef& def = kAdd ? kAddRMSNorm : kRMSNorm;
  const int64_t axis = attributes.axis;
  MojoRMSNormArgs args{};
  cudaStream_t stream;
  Shape x, scale;
  if (OrtStatus* s = ReadInput(api, context, def, 0, &args.x, &x)) return s;
  if (kAdd) {
    Shape residual;
    if (OrtStatus* s = ReadInput(api, context, def, 1, &args.residual, &residual)) return s;
    if (OrtStatus* s = CheckSame(api, def, "X", x, "residual", residual)) return s;
  }
  if (OrtStatus* s = ReadInput(api, context, def, kAdd ? 2 : 1, &args.scale, &scale)) return s;
  if (OrtStatus* s = SplitAtAxis(api, def, x, axis, &args.rows, &args.width)) return s;
  if (OrtStatus* s = CheckScale(api, def, x, axis, scale)) return s;
  if (OrtStatus* s = MakeOutput(api, context, def, 0, x, &args.y)) return s;
  if (kAdd) {
    if (OrtStatus* s = MakeOutput(api, context, def, 1, x, &args.sum)) return s;
  }
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (args.rows == 0 || args.width == 0) return nullptr;
  args.epsilon = attributes.epsilon;
  args.scale_after_cast = attributes.scale_after_cast;
  args.x_type = x_type;
  args.scale_type = scale_type;
  return Launched(api, def, kAdd ? MojoCudaAddRMSNorm(&args, stream) : MojoCudaRMSNorm(&args, stream));
}

}  // namespace

const Backend kCUDARMSNorm = MakeBackend<NormKernel<false>>(kCUDAProvider, MayInPlace<0, 0>);
// The pairs that MojoRMSNormArgs allows: never Y over X's memory where sum takes it.
const Backend kCUDAAddRMSNorm = MakeBackend<NormKernel<true>>(kCUDAProvider, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
