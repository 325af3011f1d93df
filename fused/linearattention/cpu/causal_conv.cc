// CausalConv on the CPU.
#include "common/attributes.h"
#include "cpu/backends.h"

namespace mojo {
namespace {

// CausalConvKernel is the state of one node.
struct CausalConvKernel {
  CausalConvAttributes attributes{};
  ConvFn run = nullptr;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* CausalConvKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  run = TheKernels()->conv(ToElementType(init.types.inputs[kCausalConvX]));
  return nullptr;
}

OrtStatus* CausalConvKernel::Compute(const Api& api, OrtKernelContext* context) const {
  CausalConvCall call(api, context, attributes);
  void *y, *present;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &y)) return s;
  if (OrtStatus* s = call.Make(1, &present)) return s;
  const CausalConvSizes& n = call.sizes;
  const ConvArgs args = {call.data[kCausalConvX],
                         call.data[kCausalConvWeight],
                         call.data[kCausalConvBias],
                         call.data[kCausalConvPast],
                         y,
                         present,
                         n.C,
                         n.N,
                         n.W,
                         n.L,
                         attributes.silu};
  return RunInTasks(api, context, run, args, n.B * n.C, n.N * n.W);
}

}  // namespace

const Backend kCPUCausalConv = MakeBackend<CausalConvKernel>(nullptr, MayInPlace<kCausalConvPast, 1>);

}  // namespace mojo
