// AllReduceAddRMSNorm on the CPU.
#include "collective/cpu/all_reduce.h"
#include "cpu/scratch.h"
#include "rmsnorm/cpu/prepared_scale.h"

namespace mojo {
namespace {

// ReducedNorm is the state of one node.
struct ReducedNorm {
  AllReduceAddRMSNormAttributes attributes{};
  NormFn run = nullptr;
  ElementType type = kFloat32;
  Member member;
  PreparedScale prepared;
  HostMemory memory;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* ReducedNorm::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  if (OrtStatus* s = member.Init(init, attributes.rank, attributes.ranks, attributes.plan)) return s;
  type = ToElementType(init.types.inputs[0]);
  NormKey key;
  key.x = type;
  key.y = ToElementType(init.types.outputs[0]);
  key.scale_after_cast = attributes.scale_after_cast;
  key.add = true;
  run = TheKernels()->norm(key);
  if (run == nullptr) {
    return Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
  }
  if (OrtStatus* s = memory.Find(init)) return s;
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
  HostScratch scratch;
  if (member.ranks > 1) {
    void* reduced = args.sum;
    if (reduced == nullptr && x.Count() > 0) {
      if (OrtStatus* s = scratch.Take(api, context, memory, x.Count() * SizeOf(type))) return s;
      reduced = scratch.memory();
    }
    if (OrtStatus* s = AllReduce(api, context, member, type, args.x, reduced, x.Count())) return s;
    args.x = reduced;
  }
  if (rows == 0 || width == 0) return nullptr;
  args.width = width;
  args.epsilon = attributes.epsilon;
  return RunInTasks(api, context, run, args, rows, width);
}

}  // namespace

// As for AddRMSNorm: sum must never be in Y's memory.
const Backend kCPUAllReduceAddRMSNorm = MakeBackend<ReducedNorm>(nullptr, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
