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
  Shape gate, up;
  if (OrtStatus* s = ReadInput(api, context, kGLU, 0, &args.gate, &gate)) return s;
  if (OrtStatus* s = ReadInput(api, context, kGLU, 1, &args.up, &up)) return s;
  if (OrtStatus* s = CheckSame(api, kGLU, "gate", gate, "up", up)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kGLU, 0, gate, &args.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  args.count = gate.Count();
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
