// The entry point of libmojo_ops.
#include "cpu/backends.h"

namespace {

#define MOJO_CPU_ROW(op) {&mojo::k##op, &mojo::kCPU##op},

constexpr mojo::OpEntry kTable[] = {MOJO_CPU_OPS(MOJO_CPU_ROW)};

}  // namespace

extern "C" MOJO_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  return mojo::RegisterLibrary(options, base, kTable, sizeof(kTable) / sizeof(kTable[0]));
}
