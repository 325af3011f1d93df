// GatedRMSNorm on CUDA.
#include "common/gated_rms_norm.h"

#include <new>

#include "cuda/backends.h"

namespace mojo {
namespace {

// GatedNormKernel is the state of one node. Immutable after Create.
struct GatedNormKernel {
  GatedRMSNormAttributes attributes;
  MojoType x, gate, scale;
};

void Destroy(void* state) { delete static_cast<GatedNormKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  GatedRMSNormAttributes attributes{};
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  const auto type = [&](int input) { return ToMojoType(init.types.inputs[input]); };
  auto* kernel = new (std::nothrow)
      GatedNormKernel{attributes, type(kGatedRMSNormX), type(kGatedRMSNormGate), type(kGatedRMSNormScale)};
  if (kernel == nullptr) return OutOfMemory(init.api);
  *state = kernel;
  return nullptr;
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const GatedNormKernel*>(state);
  const GatedRMSNormAttributes& a = kernel.attributes;
  GatedRMSNormTensors t;
  cudaStream_t stream;
  if (OrtStatus* s = ReadGatedRMSNorm(api, context, a, &t)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  const MojoGatedRMSNormArgs args = {t.x,      t.gate,      t.scale,      t.y,       t.rows,
                                     t.width,  a.groups,    a.gate_first, a.epsilon, a.scale_after_cast,
                                     kernel.x, kernel.gate, kernel.scale};
  return Launched(api, kGatedRMSNorm, MojoCudaGatedRMSNorm(&args, stream));
}

}  // namespace

const Backend kCUDAGatedRMSNorm = {kCUDAProvider, Create, Compute, Destroy, MayInPlace<0, 0, 1, 0>};

}  // namespace mojo
