// TopKRouter on CUDA.
#include <new>

#include "common/topk_router.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// RouterKernel is the state of one node. Immutable after Create.
struct RouterKernel {
  RouterAttributes attributes;
  MojoType logits, bias;
  DeviceMemory memory;
};

void Destroy(void* state) { delete static_cast<RouterKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  auto* kernel = new (std::nothrow) RouterKernel{};
  if (kernel == nullptr) return OutOfMemory(init.api);
  kernel->logits = ToMojoType(init.types.inputs[0]);
  kernel->bias = ToMojoType(init.types.inputs[1]);
  OrtStatus* status = ReadAttributes(init, &kernel->attributes);
  if (status == nullptr) status = kernel->memory.Find(init);
  if (status != nullptr) {
    Destroy(kernel);
    return status;
  }
  *state = kernel;
  return nullptr;
}

MojoScore ToMojoScore(Score score) {
  switch (score) {
    case Score::kSigmoid: return kMojoSigmoid;
    case Score::kSqrtsoftplus: return kMojoSqrtSoftplus;
    default: return kMojoSoftmax;
  }
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const RouterKernel*>(state);
  const RouterAttributes& a = kernel.attributes;
  MojoTopKRouterArgs args{};
  cudaStream_t stream;
  RouterTensors tensors;
  if (OrtStatus* s = ReadRouter(api, context, a, &tensors)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (tensors.rows == 0) return nullptr;
  args.logits = tensors.logits;
  args.bias = tensors.bias;
  args.weights = tensors.weights;
  args.ids = tensors.ids;
  args.rows = tensors.rows;
  args.experts = tensors.experts;
  args.top_k = static_cast<size_t>(a.top_k);
  args.logits_type = kernel.logits;
  args.bias_type = kernel.bias;
  args.score = ToMojoScore(a.score);
  args.top_k_first = a.top_k_first;
  args.groups = static_cast<size_t>(a.groups);
  args.group_top_k = static_cast<size_t>(a.group_top_k);
  args.top2_sum = a.top2_sum;
  args.excluded_score = a.excluded_score;
  args.renormalize = a.renormalize;
  args.epsilon = a.epsilon;
  args.scale = a.scale;
  Scratch scratch(kernel.memory);
  if (OrtStatus* s = scratch.Take(api, context, kTopKRouter, MojoTopKRouterScratch(&args), &args.scratch)) return s;
  return Launched(api, kTopKRouter, MojoCudaTopKRouter(&args, stream));
}

}  // namespace

const Backend kCUDATopKRouter = {kCUDAProvider, Create, Compute, Destroy, nullptr};

}  // namespace mojo
