// NormQuantize on CUDA.
#include "common/attributes.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// NormQuantizeKernel is the state of one node.
struct NormQuantizeKernel {
  NormQuantizeAttributes attributes{};
  MojoType x = kMojoFloat32, scale = kMojoFloat32;
  bool float8 = false;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* NormQuantizeKernel::Init(const KernelInit& init) {
  x = ToMojoType(init.types.inputs[kNormQuantizeX]);
  scale = ToMojoType(init.types.inputs[kNormQuantizeScale]);
  float8 = init.types.outputs[0] == kF8;
  return ReadAttributes(init, &attributes);
}

OrtStatus* NormQuantizeKernel::Compute(const Api& api, OrtKernelContext* context) const {
  NormQuantizeCall call(api, context, attributes);
  cudaStream_t stream;
  void *y, *y_scale, *sum;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &y)) return s;
  if (OrtStatus* s = call.Make(1, &y_scale)) return s;
  if (OrtStatus* s = call.Make(2, &sum)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  MojoNormQuantizeArgs args{};
  args.x = call.data[kNormQuantizeX];
  args.residual = call.data[kNormQuantizeResidual];
  args.scale = call.data[kNormQuantizeScale];
  args.y = y;
  args.y_scale = static_cast<float*>(y_scale);
  args.sum = sum;
  args.rows = call.sizes.A;
  args.width = call.sizes.D;
  args.epsilon = attributes.epsilon;
  args.least_scale = attributes.least_scale;
  args.scale_after_cast = attributes.scale_after_cast;
  args.float8 = float8;
  args.x_type = x;
  args.scale_type = scale;
  return Launched(api, kNormQuantize, MojoCudaNormQuantize(&args, stream));
}

}  // namespace

// sum may take the memory of x or residual. Y has another size.
const Backend kCUDANormQuantize = MakeBackend<NormQuantizeKernel>(kCUDAProvider, MayInPlace<0, 2, 3, 2>);

}  // namespace mojo
