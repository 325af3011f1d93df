// RMSNorm, AddRMSNorm, GatedRMSNorm and NormQuantize on the CPU.
#include <type_traits>

#include "rmsnorm/cpu/prepared_scale.h"

namespace mojo {
namespace {

template <bool kAdd>
using Call = std::conditional_t<kAdd, AddRMSNormCall, RMSNormCall>;

template <bool kAdd>
constexpr size_t kScale = kAdd ? size_t{kAddRMSNormScale} : size_t{kRMSNormScale};

// NormKernel is the state of one node.
template <bool kAdd>
struct NormKernel : ScaledNode<RMSNormAttributes, NormFn> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState::Init(init)) return s;
    const NormFn norm = TheKernels()->norm({Input(0), Output(0), attributes.scale_after_cast, kAdd});
    return Use(init, norm, kScale<kAdd>);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    Call<kAdd> call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    const Shape &x = call.shapes[0], &scale = call.shapes[kScale<kAdd>];
    const size_t rows = x.Product(0, x.rank - scale.rank), width = scale.Count();
    NormArgs args{};
    ScaleRoom room;
    if (OrtStatus* s = prepared.AsFloats(api, call.data[kScale<kAdd>], width, &room, &args.scale)) return s;
    if (OrtStatus* s = call.Make(0, &args.y)) return s;
    args.x = call.data[0];
    if (kAdd) {
      args.residual = call.data[kAddRMSNormResidual];
      if (OrtStatus* s = call.Make(1, &args.sum)) return s;
    }
    if (rows == 0 || width == 0) return nullptr;
    args.width = width;
    args.epsilon = attributes.epsilon;
    return RunInTasks(api, context, run, args, rows, width);
  }
};

// GatedNormKernel is the state of one node.
struct GatedNormKernel : ScaledNode<GatedRMSNormAttributes, NormFn> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState::Init(init)) return s;
    const NormGate gate = attributes.gate_first ? kGateThenNorm : kNormThenGate;
    const NormKey key{Input(kGatedRMSNormX), Output(0), attributes.scale_after_cast, false, gate};
    return Use(init, TheKernels()->norm(key), kGatedRMSNormScale);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    GatedRMSNormCall call(api, context, attributes);
    NormArgs args{};
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = call.Make(0, &args.y)) return s;
    args.groups = static_cast<size_t>(attributes.groups);
    const size_t rows = call.sizes.A * args.groups, width = call.sizes.D / args.groups;
    if (rows == 0 || width == 0) return nullptr;
    args.x = call.data[kGatedRMSNormX];
    args.gate = call.data[kGatedRMSNormGate];
    args.epsilon = attributes.epsilon;
    args.width = width;
    ScaleRoom room;
    if (OrtStatus* s = prepared.AsFloats(api, call.data[kGatedRMSNormScale], call.sizes.D, &room, &args.scale)) {
      return s;
    }
    return RunInTasks(api, context, run, args, rows, width);
  }
};

// NormQuantizeKernel is the state of one node.
struct NormQuantizeKernel : ScaledNode<NormQuantizeAttributes, NormQuantizeFn> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState::Init(init)) return s;
    const NormQuantizeFn norm = TheKernels()->norm_quantize(Input(kNormQuantizeX), attributes.scale_after_cast);
    return Use(init, norm, kNormQuantizeScale);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    NormQuantizeCall call(api, context, attributes);
    NormQuantizeArgs args{};
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = call.Make(0, &args.y)) return s;
    if (OrtStatus* s = call.Make(1, &args.y_scale)) return s;
    if (OrtStatus* s = call.Make(2, &args.sum)) return s;
    if (call.sizes.A == 0) return nullptr;
    args.x = call.data[kNormQuantizeX];
    args.residual = call.data[kNormQuantizeResidual];
    args.width = call.sizes.D;
    args.epsilon = attributes.epsilon;
    args.least_scale = attributes.least_scale;
    args.float8 = types->outputs[0] == kF8;
    ScaleRoom room;
    if (OrtStatus* s = prepared.AsFloats(api, call.data[kNormQuantizeScale], args.width, &room, &args.scale)) return s;
    return RunInTasks(api, context, run, args, call.sizes.A, args.width);
  }
};

}  // namespace

const Backend kCPURMSNorm = MakeBackend<NormKernel<false>>(nullptr, MayInPlace<0, 0>);
// X's memory for sum and residual's for Y: sum, which the second pass reads, must never be Y's.
const Backend kCPUAddRMSNorm = MakeBackend<NormKernel<true>>(nullptr, MayInPlace<0, 1, 1, 0>);
const Backend kCPUGatedRMSNorm = MakeBackend<GatedNormKernel>(nullptr, MayInPlace<0, 0, 1, 0>);
// sum may take the memory of x or residual. Y has another size.
const Backend kCPUNormQuantize = MakeBackend<NormQuantizeKernel>(nullptr, MayInPlace<0, 2, 3, 2>);

}  // namespace mojo
