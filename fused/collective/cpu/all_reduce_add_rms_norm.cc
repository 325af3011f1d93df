// AllReduceAddRMSNorm on the CPU.
#include "collective/cpu/all_reduce.h"
#include "cpu/scratch.h"
#include "rmsnorm/cpu/prepared_scale.h"

namespace mojo {
namespace {

// ReducedNorm is the state of one node.
struct ReducedNorm : ScaledNode<AllReduceAddRMSNormAttributes, NormFn> {
  Member member;
  HostMemory memory;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState::Init(init)) return s;
    if (OrtStatus* s = member.Init(init, attributes.rank, attributes.ranks, attributes.plan)) return s;
    if (OrtStatus* s = memory.Find(init)) return s;
    const NormFn norm = TheKernels()->norm({Input(0), Output(0), attributes.scale_after_cast, true});
    return Use(init, norm, kAllReduceAddRMSNormScale);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    AllReduceAddRMSNormCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    const Shape &x = call.shapes[0], &scale = call.shapes[kAllReduceAddRMSNormScale];
    const size_t rows = x.Product(0, x.rank - scale.rank), width = scale.Count();
    NormArgs args{};
    ScaleRoom room;
    if (OrtStatus* s = prepared.AsFloats(api, call.data[kAllReduceAddRMSNormScale], width, &room, &args.scale))
      return s;
    if (OrtStatus* s = call.Make(0, &args.y)) return s;
    if (OrtStatus* s = call.Make(1, &args.sum)) return s;
    args.x = call.data[0];
    args.residual = call.data[kAllReduceAddRMSNormResidual];
    HostScratch scratch;
    if (member.ranks > 1) {
      void* reduced = args.sum;
      if (reduced == nullptr && x.Count() > 0) {
        if (OrtStatus* s = scratch.Take(api, context, memory, x.Count() * SizeOf(Input(0)))) return s;
        reduced = scratch.memory();
      }
      if (OrtStatus* s = AllReduce(api, context, member, Input(0), args.x, reduced, x.Count())) return s;
      args.x = reduced;
    }
    if (rows == 0 || width == 0) return nullptr;
    args.width = width;
    args.epsilon = attributes.epsilon;
    return RunInTasks(api, context, run, args, rows, width);
  }
};

}  // namespace

// As for AddRMSNorm: sum must never be in Y's memory.
const Backend kCPUAllReduceAddRMSNorm = MakeBackend<ReducedNorm>(nullptr, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
