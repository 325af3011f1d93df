// AllReduce, AllGather, ReduceScatter, AllToAll and AllReduceAddRMSNorm on CUDA.
#include "collective/cuda/shared_stream.h"

namespace mojo {
namespace {

// Collective is the state of one node.
template <class Kernel, class Call, class Args, auto kLaunch, auto kScratch = nullptr>
struct Collective : CUDAKernel<Kernel, Call, Args, kLaunch, kScratch> {
  using Base = CUDAKernel<Kernel, Call, Args, kLaunch, kScratch>;

  Member member;
  mutable SharedStream shared;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = Base::Init(init)) return s;
    return member.Init(init, this->attributes.rank, this->attributes.ranks, this->attributes.plan);
  }
  OrtStatus* Join(const Call& call, Args* args) const {
    return shared.Join(call.api(), call.def(), member, call.context(), &args->peers);
  }
};

struct AllReduceKernel : Collective<AllReduceKernel, AllReduceCall, MojoAllReduceArgs, MojoCudaAllReduce> {
  OrtStatus* Fill(AllReduceCall* call, MojoAllReduceArgs* args) const {
    args->x = call->data[0];
    args->count = call->shapes[0].Count();
    args->type = Input(0);
    if (OrtStatus* s = call->Make(0, &args->y)) return s;
    return call->Empty() ? nullptr : Join(*call, args);
  }
};

// PartsKernel is one of the ops with parts along an axis. kDivides: x has the parts of all ranks.
template <class Call, auto kLaunch, bool kDivides>
struct PartsKernel : Collective<PartsKernel<Call, kLaunch, kDivides>, Call, MojoPartsArgs, kLaunch> {
  OrtStatus* Fill(Call* call, MojoPartsArgs* args) const {
    const Shape& x = call->shapes[0];
    const size_t parts = kDivides ? static_cast<size_t>(this->member.ranks) : 1;
    const auto axis = static_cast<size_t>(static_cast<int64_t>(x.rank) + this->attributes.axis);
    args->x = call->data[0];
    args->part = x.Count() / parts;
    args->inner = x.Product(axis, x.rank) / parts;
    args->type = this->Input(0);
    if (OrtStatus* s = call->Make(0, &args->y)) return s;
    return call->Empty() ? nullptr : this->Join(*call, args);
  }
};

struct ReducedNormKernel : Collective<ReducedNormKernel, AllReduceAddRMSNormCall, MojoAllReduceAddRMSNormArgs,
                                      MojoCudaAllReduceAddRMSNorm, MojoAllReduceAddRMSNormScratch> {
  OrtStatus* Fill(AllReduceAddRMSNormCall* call, MojoAllReduceAddRMSNormArgs* args) const {
    const Shape &x = call->shapes[0], &scale = call->shapes[kAllReduceAddRMSNormScale];
    args->rows = x.Product(0, x.rank - scale.rank);
    args->width = scale.Count();
    args->x = call->data[0];
    args->residual = call->data[kAllReduceAddRMSNormResidual];
    args->scale = call->data[kAllReduceAddRMSNormScale];
    args->epsilon = attributes.epsilon;
    args->scale_after_cast = attributes.scale_after_cast;
    args->x_type = Input(0);
    args->scale_type = Input(kAllReduceAddRMSNormScale);
    if (OrtStatus* s = call->Make(0, &args->y)) return s;
    if (OrtStatus* s = call->Make(1, &args->sum)) return s;
    return call->Empty() ? nullptr : Join(*call, args);
  }
};

}  // namespace

const Backend kCUDAAllReduce = MakeBackend<AllReduceKernel>(kCUDAProvider, MayInPlace<0, 0>);
const Backend kCUDAAllGather = MakeBackend<PartsKernel<AllGatherCall, MojoCudaAllGather, false>>(kCUDAProvider);
const Backend kCUDAReduceScatter =
    MakeBackend<PartsKernel<ReduceScatterCall, MojoCudaReduceScatter, true>>(kCUDAProvider);
const Backend kCUDAAllToAll = MakeBackend<PartsKernel<AllToAllCall, MojoCudaAllToAll, true>>(kCUDAProvider);
// Y is never in the residual's memory: the sum of the ranks may come there first.
const Backend kCUDAAllReduceAddRMSNorm = MakeBackend<ReducedNormKernel>(kCUDAProvider, MayInPlace<0, 1>);

}  // namespace mojo
