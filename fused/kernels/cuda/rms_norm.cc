// RMSNorm and AddRMSNorm on CUDA.
#include <new>

#include "common/rms_norm.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// NormKernel is the state of one node. Immutable after Create.
struct NormKernel {
  RMSNormAttributes attributes;
  MojoType x, scale;
};

void Destroy(void* state) { delete static_cast<NormKernel*>(state); }

template <bool kAdd>
OrtStatus* Create(const KernelInit& init, void** state) {
  RMSNormAttributes attributes{};
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  auto* kernel = new (std::nothrow)
      NormKernel{attributes, ToMojoType(init.types.inputs[0]), ToMojoType(init.types.inputs[kAdd ? 2 : 1])};
  if (kernel == nullptr) return OutOfMemory(init.api);
  *state = kernel;
  return nullptr;
}

template <bool kAdd>
OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const NormKernel*>(state);
  const OpDef& def = kAdd ? kAddRMSNorm : kRMSNorm;
  const int64_t axis = kernel.attributes.axis;
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
  args.epsilon = kernel.attributes.epsilon;
  args.scale_after_cast = kernel.attributes.scale_after_cast;
  args.x_type = kernel.x;
  args.scale_type = kernel.scale;
  return Launched(api, def, kAdd ? MojoCudaAddRMSNorm(&args, stream) : MojoCudaRMSNorm(&args, stream));
}

}  // namespace

const Backend kCUDARMSNorm = {kCUDAProvider, Create<false>, Compute<false>, Destroy, MayInPlace<0, 0>};
// The pairs that MojoRMSNormArgs allows: never Y over X's memory where sum takes it.
const Backend kCUDAAddRMSNorm = {kCUDAProvider, Create<true>, Compute<true>, Destroy, MayInPlace<0, 1, 1, 0>};

}  // namespace mojo
