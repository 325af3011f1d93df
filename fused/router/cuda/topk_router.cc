// TopKRouter on CUDA.

#include "common/attributes.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// RouterKernel is the state of one node.
struct RouterKernel {
  TopKRouterAttributes attributes{};
  MojoType logits = kMojoFloat32, bias = kMojoFloat32;
  DeviceMemory memory;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* RouterKernel::Init(const KernelInit& init) {
  logits = ToMojoType(init.types.inputs[0]);
  bias = ToMojoType(init.types.inputs[1]);
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  return memory.Find(init);
}

MojoScore ToMojoScore(Score score) {
  switch (score) {
    case Score::kSigmoid: return kMojoSigmoid;
    case Score::kSqrtsoftplus: return kMojoSqrtSoftplus;
    default: return kMojoSoftmax;
  }
}

OrtStatus* RouterKernel::Compute(const Api& api, OrtKernelContext* context) const {
  const TopKRouterAttributes& a = attributes;
  MojoTopKRouterArgs args{};
  cudaStream_t stream;
  TopKRouterCall call(api, context, a);
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &args.weights)) return s;
  if (OrtStatus* s = call.Make(1, &args.ids)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (call.sizes.A == 0) return nullptr;
  args.logits = call.data[kTopKRouterLogits];
  args.bias = call.data[kTopKRouterCorrectionBias];
  args.rows = call.sizes.A;
  args.experts = call.sizes.E;
  args.top_k = static_cast<size_t>(a.top_k);
  args.logits_type = logits;
  args.bias_type = bias;
  args.score = ToMojoScore(a.score);
  args.top_k_first = a.top_k_first;
  args.groups = static_cast<size_t>(a.groups);
  args.group_top_k = static_cast<size_t>(a.group_top_k);
  args.top2_sum = a.top2_sum;
  args.excluded_score = a.excluded_score;
  args.renormalize = a.renormalize;
  args.epsilon = a.epsilon;
  args.scale = a.scale;
  Scratch scratch(memory);
  if (OrtStatus* s = scratch.Take(api, context, kTopKRouter, MojoTopKRouterScratch(&args), &args.scratch)) return s;
  return Launched(api, kTopKRouter, MojoCudaTopKRouter(&args, stream));
}

}  // namespace

const Backend kCUDATopKRouter = MakeBackend<RouterKernel>(kCUDAProvider);

}  // namespace mojo
