// Linear on CUDA.

#include "common/linear.h"
#include "cuda/quantized.h"

namespace mojo {
namespace {

// LinearKernel is the state of one node.
struct LinearKernel {
  QuantizedAttributes attributes{};
  MojoRounding rounding = kMojoNotRounded;
  MojoType type = kMojoFloat32;
  DeviceMemory memory;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* LinearKernel::Init(const KernelInit& init) {
  LinearForm form{};
  if (OrtStatus* s = ReadAttributes(init, &form)) return s;
  if (OrtStatus* s = CheckCode(init.api, kLinear, form.weights.code, form.activations)) return s;
  attributes = form.weights;
  rounding = ToMojoRounding(form.activations);
  type = ToMojoType(init.types.inputs[kLinearX]);
  return memory.Find(init);
}

OrtStatus* LinearKernel::Compute(const Api& api, OrtKernelContext* context) const {
  LinearTensors tensors{};
  MojoLinearArgs args{};
  cudaStream_t stream;
  if (OrtStatus* s = ReadLinear(api, context, attributes, &tensors)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (tensors.rows == 0) return nullptr;
  SetWeights(attributes, tensors.weights, &args.weights);
  args.x = tensors.x;
  args.bias = tensors.bias;
  args.y = tensors.y;
  args.rows = tensors.rows;
  args.type = type;
  args.rounding = rounding;
  Scratch scratch(memory);
  if (OrtStatus* s = scratch.Take(api, context, kLinear, MojoLinearScratch(&args), &args.scratch)) return s;
  return Launched(api, kLinear, MojoCudaLinear(&args, stream));
}

}  // namespace

const Backend kCUDALinear = MakeBackend<LinearKernel>(kCUDAProvider);

}  // namespace mojo
