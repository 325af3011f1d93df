// GatedRMSNorm on the CPU.
#include "common/attributes.h"
#include "cpu/backends.h"
#include "rmsnorm/cpu/prepared_scale.h"

namespace mojo {
namespace {

// GatedNormKernel is the state of one node.
struct GatedNormKernel {
  GatedRMSNormAttributes attributes{};
  NormFn run = nullptr;
  PreparedScale prepared;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* GatedNormKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  NormKey key;
  key.x = ToElementType(init.types.inputs[kGatedRMSNormX]);
  key.y = ToElementType(init.types.outputs[0]);
  key.scale_after_cast = attributes.scale_after_cast;
  key.add = false;
  key.gate = attributes.gate_first ? kGateThenNorm : kNormThenGate;
  run = TheKernels()->norm(key);
  if (run == nullptr) {
    return Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
  }
  return prepared.Prepare(init, kGatedRMSNormScale);
}

OrtStatus* GatedNormKernel::Compute(const Api& api, OrtKernelContext* context) const {
  GatedRMSNormCall call(api, context, attributes);
  void* y;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &y)) return s;
  const auto groups = static_cast<size_t>(attributes.groups);
  const size_t rows = call.sizes.A * groups, width = call.sizes.D / groups;
  if (rows == 0 || width == 0) return nullptr;
  NormArgs args{};
  args.x = call.data[kGatedRMSNormX];
  args.gate = call.data[kGatedRMSNormGate];
  args.y = y;
  args.width = width;
  args.groups = groups;
  args.epsilon = attributes.epsilon;
  ScaleRoom room;
  if (OrtStatus* s = prepared.AsFloats(api, call.data[kGatedRMSNormScale], call.sizes.D, &room, &args.scale)) return s;
  return RunInTasks(api, context, run, args, rows, width);
}

}  // namespace

const Backend kCPUGatedRMSNorm = MakeBackend<GatedNormKernel>(nullptr, MayInPlace<0, 0, 1, 0>);

}  // namespace mojo
