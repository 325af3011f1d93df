// The entry point of libmojo_ops: onnxruntime's RegisterCustomOpsLibrary looks it up by name.
#include <stdlib.h>

#include "common/ops.h"
#include "cpu/backends.h"

namespace {

constexpr mojo::OpEntry kTable[] = {
    {&mojo::kRMSNorm, &mojo::kCPURMSNorm},
    {&mojo::kAddRMSNorm, &mojo::kCPUAddRMSNorm},
    {&mojo::kGLU, &mojo::kCPUGLU},
    {&mojo::kRotaryEmbedding, &mojo::kCPURotaryEmbedding},
    {&mojo::kTopKRouter, &mojo::kCPUTopKRouter},
    {&mojo::kMoE, &mojo::kCPUMoE},
};

}  // namespace

#ifdef _WIN32
#define MOJO_EXPORT __declspec(dllexport)
#else
#define MOJO_EXPORT __attribute__((visibility("default")))
#endif

// RegisterCustomOps adds the ops of domain "mojo" to the session options. The environment variable
// MOJO_CPU_ISA (portable, avx2 or avx512) caps the instruction set.
extern "C" MOJO_EXPORT OrtStatus* RegisterCustomOps(
    OrtSessionOptions* options, const OrtApiBase* base) {
  const mojo::Api api = mojo::ProbeApi(base);
  // Without a table there is no way to make a status. No such runtime is known.
  if (api.ort == nullptr) return nullptr;
  if (mojo::TheKernels() == nullptr) {
    const char* cap = getenv("MOJO_CPU_ISA");
    return mojo::Errorf(api, "mojo: environment variable MOJO_CPU_ISA is \"%.64s\"; expected "
                        "portable, avx2 or avx512",
                        cap == nullptr ? "" : cap);
  }
  return mojo::RegisterOps(options, api, kTable, sizeof(kTable) / sizeof(kTable[0]));
}
