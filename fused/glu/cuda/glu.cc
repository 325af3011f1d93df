// GLU on CUDA.

#include "common/attributes.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// GateKernel is the state of one node.
struct GateKernel {
  GLUAttributes attributes{};
  MojoType type = kMojoFloat32;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* GateKernel::Init(const KernelInit& init) {
  type = ToMojoType(init.types.inputs[0]);
  return ReadAttributes(init, &attributes);
}

OrtStatus* GateKernel::Compute(const Api& api, OrtKernelContext* context) const {
  MojoGLUArgs args{};
  cudaStream_t stream;
  GLUCall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &args.y)) return s;
  args.gate = call.data[kGLUGate];
  args.up = call.data[kGLUUp];
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  args.count = call.sizes.A;
  args.type = type;
  args.activation = ToMojoActivation(attributes.activation);
  args.alpha = attributes.alpha;
  args.limit = attributes.limit;
  args.up_offset = attributes.up_offset;
  return Launched(api, kGLU, MojoCudaGLU(&args, stream));
}

}  // namespace

const Backend kCUDAGLU = MakeBackend<GateKernel>(kCUDAProvider, MayInPlace<0, 0, 1, 0>);

}  // namespace mojo
