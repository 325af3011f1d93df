// The entry point of libmojo_ops_cann: each op with its kernels for the CANN provider, for sessions with that provider,
// and its CPU kernels, for those without. onnxruntime merges rows of one op, and takes for a node the kernel of the
// provider that the node is given to.
#include "ascend/backends.h"
#include "cpu/backends.h"

namespace {

#define MOJO_CPU_ROW(op) {&mojo::k##op, &mojo::kCPU##op},
#define MOJO_CANN_ROW(op) {&mojo::k##op, &mojo::kCANN##op},

constexpr mojo::OpEntry kTable[] = {MOJO_CPU_OPS(MOJO_CPU_ROW) MOJO_NPU_OPS(MOJO_CANN_ROW)};

}  // namespace

extern "C" MOJO_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  return mojo::RegisterLibrary(options, base, kTable, sizeof(kTable) / sizeof(kTable[0]));
}
