// GatedRMSNorm on the CPU.
#include "common/gated_rms_norm.h"

#include <memory>
#include <new>

#include "cpu/backends.h"
#include "cpu/prepared_scale.h"

namespace mojo {
namespace {

// GatedNormKernel is the state of one node.
struct GatedNormKernel {
  GatedRMSNormAttributes attributes{};
  NormFn run = nullptr;
  ElementType scale_type = kFloat32;
  PreparedScale prepared;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* GatedNormKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  NormKey key;
  key.x = ToElementType(init.types.inputs[kGatedRMSNormX]);
  key.y = ToElementType(init.types.outputs[0]);
  key.scale = kFloat32;
  key.scale_after_cast = attributes.scale_after_cast;
  key.add = false;
  key.gate = attributes.gate_first ? kGateThenNorm : kNormThenGate;
  run = TheKernels()->norm(key);
  if (run == nullptr) {
    return Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
  }
  scale_type = ToElementType(init.types.inputs[kGatedRMSNormScale]);
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
  args.groups = attributes.groups;
  args.epsilon = attributes.epsilon;
  args.scale = prepared.data();
  std::unique_ptr<float[]> widened;
  if (args.scale == nullptr) {
    const size_t channels = t.width * args.groups;
    widened.reset(new (std::nothrow) float[channels]);
    if (widened == nullptr) return OutOfMemory(api);
    TheKernels()->to_float32(scale_type, t.scale, widened.get(), channels);
    args.scale = widened.get();
  }
  return RunInTasks(api, context, run, args, t.rows, t.width);
}

}  // namespace

const Backend kCPUGatedRMSNorm = MakeBackend<GatedNormKernel>(nullptr, MayInPlace<0, 0, 1, 0>);

}  // namespace mojo
