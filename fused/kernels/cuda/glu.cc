// GLU on CUDA.
#include <new>

#include "common/glu.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// GateKernel is the state of one node. Immutable after Create.
struct GateKernel {
  GLUAttributes attributes;
  MojoType type;
};

void Destroy(void* state) { delete static_cast<GateKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  GLUAttributes attributes{};
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  auto* kernel = new (std::nothrow) GateKernel{attributes, ToMojoType(init.types.inputs[0])};
  if (kernel == nullptr) return OutOfMemory(init.api);
  *state = kernel;
  return nullptr;
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const GateKernel*>(state);
  MojoGLUArgs args{};
  cudaStream_t stream;
  Shape gate, up;
  if (OrtStatus* s = ReadInput(api, context, kGLU, 0, &args.gate, &gate)) return s;
  if (OrtStatus* s = ReadInput(api, context, kGLU, 1, &args.up, &up)) return s;
  if (OrtStatus* s = CheckSame(api, kGLU, "gate", gate, "up", up)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kGLU, 0, gate, &args.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  args.count = gate.Count();
  args.type = kernel.type;
  args.activation = ToMojoActivation(kernel.attributes.activation);
  args.alpha = kernel.attributes.alpha;
  args.limit = kernel.attributes.limit;
  args.up_offset = kernel.attributes.up_offset;
  return Launched(api, kGLU, MojoCudaGLU(&args, stream));
}

}  // namespace

const Backend kCUDAGLU = {kCUDAProvider, Create, Compute, Destroy, MayInPlace<0, 0, 1, 0>};

}  // namespace mojo
