// The entry point of libmojo_ops.
#include "common/ops.h"
#include "cpu/backends.h"

namespace {

constexpr mojo::OpEntry kTable[] = {
    {&mojo::kRMSNorm, &mojo::kCPURMSNorm},
    {&mojo::kAddRMSNorm, &mojo::kCPUAddRMSNorm},
    {&mojo::kGLU, &mojo::kCPUGLU},
    {&mojo::kRotaryEmbedding, &mojo::kCPURotaryEmbedding},
    {&mojo::kNormRotary, &mojo::kCPUNormRotary},
    {&mojo::kTopKRouter, &mojo::kCPUTopKRouter},
    {&mojo::kMoE, &mojo::kCPUMoE},
};

}  // namespace

extern "C" MOJO_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  return mojo::RegisterLibrary(options, base, kTable, sizeof(kTable) / sizeof(kTable[0]));
}
