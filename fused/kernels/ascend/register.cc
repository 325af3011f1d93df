// The entry point of libmojo_ops_cann: each op with its kernels for the CANN provider, for sessions with that provider,
// and its CPU kernels, for those without. onnxruntime merges rows of one op, and takes for a node the kernel of the
// provider that the node is given to.
#include "ascend/backends.h"
#include "cpu/backends.h"

namespace {

constexpr mojo::OpEntry kTable[] = {
    {&mojo::kRMSNorm, &mojo::kCPURMSNorm},
    {&mojo::kRMSNorm, &mojo::kCANNRMSNorm},
    {&mojo::kAddRMSNorm, &mojo::kCPUAddRMSNorm},
    {&mojo::kAddRMSNorm, &mojo::kCANNAddRMSNorm},
    {&mojo::kGLU, &mojo::kCPUGLU},
    {&mojo::kGLU, &mojo::kCANNGLU},
    {&mojo::kRotaryEmbedding, &mojo::kCPURotaryEmbedding},
    {&mojo::kRotaryEmbedding, &mojo::kCANNRotaryEmbedding},
    {&mojo::kNormRotary, &mojo::kCPUNormRotary},
    {&mojo::kNormRotary, &mojo::kCANNNormRotary},
    {&mojo::kTopKRouter, &mojo::kCPUTopKRouter},
    {&mojo::kTopKRouter, &mojo::kCANNTopKRouter},
    {&mojo::kMoE, &mojo::kCPUMoE},
    {&mojo::kMoE, &mojo::kCANNMoE},
};

}  // namespace

extern "C" MOJO_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  return mojo::RegisterLibrary(options, base, kTable, sizeof(kTable) / sizeof(kTable[0]));
}
