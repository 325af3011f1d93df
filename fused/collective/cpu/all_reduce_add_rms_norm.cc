// AllReduceAddRMSNorm on the CPU.
#include "common/attributes.h"
#include "cpu/backends.h"
#include "rmsnorm/cpu/prepared_scale.h"

namespace mojo {
namespace {

// ReducedNorm is the state of one node.
struct ReducedNorm {
  AllReduceAddRMSNormAttributes attributes{};
  NormFn run = nullptr;
  PreparedScale prepared;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* ReducedNorm::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  if (attributes.ranks > 1) {
    return Errorf(init.api, "mojo.%s: %lld ranks: this library connects no ranks", init.def.name,
                  static_cast<long long>(attributes.ranks));
  }
  NormKey key;
  key.x = ToElementType(init.types.inputs[0]);
  key.y = ToElementType(init.types.outputs[0]);
  key.scale_after_cast = attributes.scale_after_cast;
  key.add = true;
  run = TheKernels()->norm(key);
  if (run == nullptr) {
    return Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
  }
  return prepared.Prepare(init, kAllReduceAddRMSNormScale);
}

OrtStatus* ReducedNorm::Compute(const Api& api, OrtKernelContext* context) const {
  AllReduceAddRMSNormCall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  const Shape &x = call.shapes[0], &scale = call.shapes[kAllReduceAddRMSNormScale];
  const size_t rows = x.Product(0, x.rank - scale.rank), width = scale.Count();
  NormArgs args{};
  ScaleRoom room;
  if (OrtStatus* s = prepared.AsFloats(api, call.data[kAllReduceAddRMSNormScale], width, &room, &args.scale)) return s;
  if (OrtStatus* s = call.Make(0, &args.y)) return s;
  if (OrtStatus* s = call.Make(1, &args.sum)) return s;
  args.x = call.data[0];
  args.residual = call.data[kAllReduceAddRMSNormResidual];
  if (rows == 0 || width == 0) return nullptr;
  args.width = width;
  args.epsilon = attributes.epsilon;
  return RunInTasks(api, context, run, args, rows, width);
}

}  // namespace

// As for AddRMSNorm: sum must never be in Y's memory.
const Backend kCPUAllReduceAddRMSNorm = MakeBackend<ReducedNorm>(nullptr, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
