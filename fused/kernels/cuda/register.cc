// The entry point of libmojo_ops_cuda: each op with its CUDA kernels, for sessions with that provider, and
// its CPU kernels, for those without. onnxruntime merges rows of one op, and takes for a node the kernel
// of the provider that the node is given to.
#include "cpu/backends.h"
#include "cuda/backends.h"

namespace {

constexpr mojo::OpEntry kTable[] = {
    {&mojo::kRMSNorm, &mojo::kCPURMSNorm},
    {&mojo::kRMSNorm, &mojo::kCUDARMSNorm},
    {&mojo::kAddRMSNorm, &mojo::kCPUAddRMSNorm},
    {&mojo::kAddRMSNorm, &mojo::kCUDAAddRMSNorm},
    {&mojo::kGLU, &mojo::kCPUGLU},
    {&mojo::kGLU, &mojo::kCUDAGLU},
    {&mojo::kRotaryEmbedding, &mojo::kCPURotaryEmbedding},
    {&mojo::kRotaryEmbedding, &mojo::kCUDARotaryEmbedding},
    {&mojo::kNormRotary, &mojo::kCPUNormRotary},
    {&mojo::kNormRotary, &mojo::kCUDANormRotary},
    {&mojo::kTopKRouter, &mojo::kCPUTopKRouter},
    {&mojo::kTopKRouter, &mojo::kCUDATopKRouter},
    {&mojo::kMoE, &mojo::kCPUMoE},
    {&mojo::kMoE, &mojo::kCUDAMoE},
};

}  // namespace

extern "C" MOJO_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  return mojo::RegisterLibrary(options, base, kTable, sizeof(kTable) / sizeof(kTable[0]));
}
