// CausalConv on CUDA.
#include "common/attributes.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// ConvKernel is the state of one node.
struct ConvKernel {
  CausalConvAttributes attributes{};
  MojoType type = kMojoFloat32;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* ConvKernel::Init(const KernelInit& init) {
  type = ToMojoType(init.types.inputs[kCausalConvX]);
  return ReadAttributes(init, &attributes);
}

OrtStatus* ConvKernel::Compute(const Api& api, OrtKernelContext* context) const {
  CausalConvCall call(api, context, attributes);
  cudaStream_t stream;
  void *y, *present;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &y)) return s;
  if (OrtStatus* s = call.Make(1, &present)) return s;
  const CausalConvSizes& n = call.sizes;
  if (n.B * n.C * (n.N + n.L) == 0) return nullptr;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  const MojoCausalConvArgs args = {call.data[kCausalConvX],
                                   call.data[kCausalConvWeight],
                                   call.data[kCausalConvBias],
                                   call.data[kCausalConvPast],
                                   y,
                                   present,
                                   n.B,
                                   n.C,
                                   n.N,
                                   n.W,
                                   n.L,
                                   attributes.silu,
                                   type};
  return Launched(api, kCausalConv, MojoCudaCausalConv(&args, stream));
}

}  // namespace

const Backend kCUDACausalConv = MakeBackend<ConvKernel>(kCUDAProvider, MayInPlace<kCausalConvPast, 1>);

}  // namespace mojo
