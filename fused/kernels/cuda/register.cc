// The entry point of libmojo_ops_cuda: each op that has CUDA kernels, for sessions with that provider, and its CPU
// kernels, for those without. onnxruntime merges rows of one op, and takes for a node the kernel of the provider that
// the node is given to. An op without CUDA kernels is left out: in a session with CUDA its node would run on the CPU,
// with copies of all it reads, while its body runs on the device.
#include "cpu/backends.h"
#include "cuda/backends.h"

namespace {

#define MOJO_CPU_ROW(op) {&mojo::k##op, &mojo::kCPU##op},
#define MOJO_CUDA_ROW(op) {&mojo::k##op, &mojo::kCUDA##op},

constexpr mojo::OpEntry kTable[] = {MOJO_CUDA_OPS(MOJO_CPU_ROW) MOJO_CUDA_OPS(MOJO_CUDA_ROW)};

}  // namespace

extern "C" MOJO_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  return mojo::RegisterLibrary(options, base, kTable, sizeof(kTable) / sizeof(kTable[0]));
}
