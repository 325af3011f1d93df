// The entry point of the library of `make demo`: the ops of its model, in float32, and the instruction set of the
// machine that built it. Other ops of a model run as the functions of standard ops that the model contains.
#include "cpu/backends.h"
#include "cpu/isa.h"

namespace {

#define MOJO_HERE_OPS(X) X(RMSNorm) X(AddRMSNorm) X(GLU) X(RotaryEmbedding) X(NormRotary) X(Attention)

// OnlyFloat32 returns an op with its first combination of types, which is float32's.
mojo::OpDef OnlyFloat32(mojo::OpDef def) {
  def.combo_count = 1;
  return def;
}

#define MOJO_HERE_DEF(op) const mojo::OpDef k##op##Here = OnlyFloat32(mojo::k##op);
MOJO_HERE_OPS(MOJO_HERE_DEF)

#define MOJO_HERE_ROW(op) {&k##op##Here, &mojo::kCPU##op},
constexpr mojo::OpEntry kTable[] = {MOJO_HERE_OPS(MOJO_HERE_ROW)};

}  // namespace

extern "C" MOJO_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  return mojo::RegisterLibrary(options, base, kTable, sizeof(kTable) / sizeof(kTable[0]));
}
