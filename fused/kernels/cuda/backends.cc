#include "cuda/backends.h"

namespace mojo {

OrtStatus* ReadStream(const Api& api, OrtKernelContext* context, cudaStream_t* stream) {
  void* found = nullptr;
  if (OrtStatus* s = api.ort->KernelContext_GetGPUComputeStream(context, &found)) return s;
  *stream = static_cast<cudaStream_t>(found);
  return nullptr;
}

OrtStatus* Launched(const Api& api, const OpDef& def, cudaError_t error) {
  if (error == cudaSuccess) return nullptr;
  return Errorf(api, "mojo.%s: the CUDA kernel was not launched: %s (%s)", def.name, cudaGetErrorString(error),
                cudaGetErrorName(error));
}

}  // namespace mojo
