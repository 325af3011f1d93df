// Linear on CUDA.

#include "linear/cuda/quantized.h"

namespace mojo {
namespace {

// LinearKernel is the state of one node.
struct LinearKernel {
  LinearForm attributes{};
  MojoRounding rounding = kMojoNotRounded;
  MojoType type = kMojoFloat32;
  DeviceMemory memory;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* LinearKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  if (OrtStatus* s = CheckCode(init.api, kLinear, attributes.matrix.code, attributes.activations)) return s;
  rounding = ToMojoRounding(attributes.activations);
  type = ToMojoType(init.types.inputs[kLinearX]);
  return memory.Find(init);
}

OrtStatus* LinearKernel::Compute(const Api& api, OrtKernelContext* context) const {
  LinearCall call(api, context, attributes);
  QuantizedTensors tensors{};
  MojoLinearArgs args{};
  cudaStream_t stream;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = GetQuantized(api, call, kLinear, PlaceFrom(kLinearCodes), attributes.matrix, &tensors)) return s;
  if (OrtStatus* s = call.Make(0, &args.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (call.sizes.A == 0) return nullptr;
  SetWeights(attributes.matrix, tensors, &args.weights);
  args.x = call.data[kLinearX];
  args.bias = call.data[kLinearBias];
  args.rows = call.sizes.A;
  args.type = type;
  args.rounding = rounding;
  Scratch scratch(memory);
  if (OrtStatus* s = scratch.Take(api, context, kLinear, MojoLinearScratch(&args), &args.scratch)) return s;
  return Launched(api, kLinear, MojoCudaLinear(&args, stream));
}

}  // namespace

const Backend kCUDALinear = MakeBackend<LinearKernel>(kCUDAProvider);

}  // namespace mojo
