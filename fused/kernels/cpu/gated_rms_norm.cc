// GatedRMSNorm on the CPU.
#include "common/gated_rms_norm.h"

#include <memory>
#include <new>

#include "cpu/backends.h"
#include "cpu/prepared_scale.h"

namespace mojo {
namespace {

// GatedNormKernel is the state of one node. Immutable after Create.
struct GatedNormKernel {
  GatedRMSNormAttributes attributes;
  NormFn run;
  ElementType scale;
  PreparedScale prepared;
};

void Destroy(void* state) { delete static_cast<GatedNormKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  std::unique_ptr<GatedNormKernel> kernel(new (std::nothrow) GatedNormKernel{});
  if (kernel == nullptr) return OutOfMemory(init.api);
  if (OrtStatus* s = ReadAttributes(init, &kernel->attributes)) return s;
  NormKey key;
  key.x = ToElementType(init.types.inputs[kGatedRMSNormX]);
  key.y = ToElementType(init.types.outputs[0]);
  key.scale = kFloat32;
  key.scale_after_cast = kernel->attributes.scale_after_cast;
  key.add = false;
  key.gate = kernel->attributes.gate_first ? kGateThenNorm : kNormThenGate;
  kernel->run = TheKernels()->norm(key);
  if (kernel->run == nullptr) {
    return Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
  }
  kernel->scale = ToElementType(init.types.inputs[kGatedRMSNormScale]);
  if (OrtStatus* s = kernel->prepared.Prepare(init, kGatedRMSNormScale)) return s;
  *state = kernel.release();
  return nullptr;
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const GatedNormKernel*>(state);
  GatedRMSNormTensors t;
  if (OrtStatus* s = ReadGatedRMSNorm(api, context, kernel.attributes, &t)) return s;
  if (t.rows == 0 || t.width == 0) return nullptr;
  NormArgs args{};
  args.x = t.x;
  args.gate = t.gate;
  args.y = t.y;
  args.width = t.width;
  args.groups = kernel.attributes.groups;
  args.epsilon = kernel.attributes.epsilon;
  args.scale = kernel.prepared.data();
  std::unique_ptr<float[]> widened;
  if (args.scale == nullptr) {
    const size_t channels = t.width * args.groups;
    widened.reset(new (std::nothrow) float[channels]);
    if (widened == nullptr) return OutOfMemory(api);
    TheKernels()->to_float32(kernel.scale, t.scale, widened.get(), channels);
    args.scale = widened.get();
  }
  return RunInTasks(api, context, kernel.run, args, t.rows, t.width);
}

}  // namespace

const Backend kCPUGatedRMSNorm = {nullptr, Create, Compute, Destroy, MayInPlace<0, 0, 1, 0>};

}  // namespace mojo
