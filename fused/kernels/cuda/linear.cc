// Linear on CUDA.
#include <new>

#include "common/linear.h"
#include "cuda/coded.h"

namespace mojo {
namespace {

// LinearKernel is the state of one node. Immutable after Create.
struct LinearKernel {
  CodedAttributes weights;
  MojoRounding rounding;
  MojoType type;
  DeviceMemory memory;
};

void Destroy(void* state) { delete static_cast<LinearKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  auto* kernel = new (std::nothrow) LinearKernel{};
  if (kernel == nullptr) return OutOfMemory(init.api);
  OrtStatus* status = ReadCodedAttributes(init, kLinearCodes, &kernel->weights);
  if (status == nullptr) {
    AttributeReader read(init);
    const auto activations = read.Choice<Activations>("activations");
    kernel->rounding = ToMojoRounding(activations);
    kernel->type = ToMojoType(init.types.inputs[kLinearX]);
    status = read.status;
    if (status == nullptr) status = CheckCode(init.api, kLinear, kernel->weights.code, activations);
  }
  if (status == nullptr) status = kernel->memory.Find(init);
  if (status != nullptr) {
    Destroy(kernel);
    return status;
  }
  *state = kernel;
  return nullptr;
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const LinearKernel*>(state);
  LinearTensors tensors{};
  MojoLinearArgs args{};
  cudaStream_t stream;
  if (OrtStatus* s = ReadLinear(api, context, kernel.weights, &tensors)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (tensors.rows == 0) return nullptr;
  SetWeights(kernel.weights, tensors.weights, &args.weights);
  args.x = tensors.x;
  args.bias = tensors.bias;
  args.y = tensors.y;
  args.rows = tensors.rows;
  args.type = kernel.type;
  args.rounding = kernel.rounding;
  Scratch scratch(kernel.memory);
  if (OrtStatus* s = scratch.Take(api, context, kLinear, MojoLinearScratch(&args), &args.scratch)) return s;
  return Launched(api, kLinear, MojoCudaLinear(&args, stream));
}

}  // namespace

const Backend kCUDALinear = {kCUDAProvider, Create, Compute, Destroy, nullptr};

}  // namespace mojo
