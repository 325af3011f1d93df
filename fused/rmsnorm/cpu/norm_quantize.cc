// NormQuantize on the CPU.
#include "common/attributes.h"
#include "cpu/backends.h"
#include "rmsnorm/cpu/prepared_scale.h"

namespace mojo {
namespace {

// NormQuantizeKernel is the state of one node.
struct NormQuantizeKernel {
  NormQuantizeAttributes attributes{};
  NormQuantizeFn run = nullptr;
  bool float8 = false;
  PreparedScale prepared;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* NormQuantizeKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  float8 = init.types.outputs[0] == kF8;
  run = TheKernels()->norm_quantize(ToElementType(init.types.inputs[kNormQuantizeX]), attributes.scale_after_cast);
  return prepared.Prepare(init, kNormQuantizeScale);
}

OrtStatus* NormQuantizeKernel::Compute(const Api& api, OrtKernelContext* context) const {
  NormQuantizeCall call(api, context, attributes);
  void *y, *y_scale, *sum;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &y)) return s;
  if (OrtStatus* s = call.Make(1, &y_scale)) return s;
  if (OrtStatus* s = call.Make(2, &sum)) return s;
  if (call.sizes.A == 0) return nullptr;
  NormQuantizeArgs args{};
  args.x = call.data[kNormQuantizeX];
  args.residual = call.data[kNormQuantizeResidual];
  args.y = static_cast<uint8_t*>(y);
  args.y_scale = static_cast<float*>(y_scale);
  args.sum = sum;
  args.width = call.sizes.D;
  args.epsilon = attributes.epsilon;
  args.least_scale = attributes.least_scale;
  args.float8 = float8;
  ScaleRoom room;
  if (OrtStatus* s = prepared.AsFloats(api, call.data[kNormQuantizeScale], args.width, &room, &args.scale)) return s;
  return RunInTasks(api, context, run, args, call.sizes.A, args.width);
}

}  // namespace

// sum may take the memory of x or residual. Y has another size.
const Backend kCPUNormQuantize = MakeBackend<NormQuantizeKernel>(nullptr, MayInPlace<0, 2, 3, 2>);

}  // namespace mojo
