// GatedRMSNorm on the CPU.
#include "common/gated_rms_norm.h"

#include "cpu/backends.h"
#include "cpu/prepared_scale.h"

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
  GatedRMSNormTensors t;
  if (OrtStatus* s = ReadGatedRMSNorm(api, context, attributes, &t)) return s;
  if (t.rows == 0 || t.width == 0) return nullptr;
  NormArgs args{};
  args.x = t.x;
  args.gate = t.gate;
  args.y = t.y;
  args.width = t.width;
  args.groups = static_cast<size_t>(attributes.groups);
  args.epsilon = attributes.epsilon;
  ScaleRoom room;
  if (OrtStatus* s = prepared.AsFloats(api, t.scale, t.width * attributes.groups, &room, &args.scale)) return s;
  return RunInTasks(api, context, run, args, t.rows, t.width);
}

}  // namespace

const Backend kCPUGatedRMSNorm = MakeBackend<GatedNormKernel>(nullptr, MayInPlace<0, 0, 1, 0>);

}  // namespace mojo
