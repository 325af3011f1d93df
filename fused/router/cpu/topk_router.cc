// TopKRouter on the CPU.
#include <memory>
#include <new>

#include "cpu/backends.h"

namespace mojo {
namespace {

// RouterKernel is the state of one node.
struct RouterKernel : NodeState<TopKRouterAttributes> {
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    const TopKRouterAttributes& a = attributes;
    RouterArgs args{};
    TopKRouterCall call(api, context, a);
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = call.Make(0, &args.weights)) return s;
    if (OrtStatus* s = call.Make(1, &args.ids)) return s;
    if (call.sizes.A == 0) return nullptr;
    args.logits = call.data[kTopKRouterLogits];
    args.bias = call.data[kTopKRouterCorrectionBias];
    args.logits_type = Input(kTopKRouterLogits);
    args.bias_type = Input(kTopKRouterCorrectionBias);
    args.experts = call.sizes.E;
    args.top_k = static_cast<size_t>(a.top_k);
    args.groups = static_cast<size_t>(a.groups);
    args.group_top_k = static_cast<size_t>(a.group_top_k);
    args.excluded = a.excluded_score;
    args.epsilon = a.epsilon;
    args.scale = a.scale;
    args.score = a.score;
    args.top_k_first = a.top_k_first;
    args.top2_sum = a.top2_sum;
    args.renormalize = a.renormalize;
    const RouterFn route = TheKernels()->router;
    if (call.sizes.E > kRouterExperts) {  // more than any model has: one task with its own memory
      const std::unique_ptr<float[]> scratch(new (std::nothrow) float[kRouterScratch * (call.sizes.E + 64)]);
      if (scratch == nullptr) return OutOfMemory(api);
      args.scratch = scratch.get();
      route(args, 0, call.sizes.A);
      return nullptr;
    }
    // Each expert is read once for its score, and once for each choice.
    return RunInTasks(api, context, route, args, call.sizes.A, call.sizes.E * (2 + args.top_k / 4));
  }
};

}  // namespace

const Backend kCPUTopKRouter = MakeBackend<RouterKernel>(nullptr);

}  // namespace mojo
