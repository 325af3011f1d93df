// The inner loops of the library of `make demo`: those of the ops that cpu/here.cc registers, in float32. CMake
// compiles this file for the instruction set of the machine.
#define MOJO_ONLY_FLOAT32
#include "cpu/simd/attention.h"
#include "cpu/simd/gate.h"
#include "cpu/simd/kernels.h"
#include "cpu/simd/norm.h"
#include "cpu/simd/norm_rotary.h"
#include "cpu/simd/rotary.h"
#include "cpu/simd/stream.h"
#include "cpu/simd/widen.h"

namespace mojo {
namespace {

#define MOJO_TEXT2(x) #x
#define MOJO_TEXT(x) MOJO_TEXT2(x)

constexpr KernelTable Here() {
  KernelTable table{};
  table.name = MOJO_TEXT(MOJO_ISA);
  table.lanes = MOJO_ISA::kLanes;
  table.norm = MOJO_ISA::PickNorm;
  table.gate = MOJO_ISA::PickGate;
  table.rotary = MOJO_ISA::PickRotary;
  table.norm_rotary = MOJO_ISA::PickNormRotary;
  table.to_float32 = MOJO_ISA::ToFloat32;
  table.attention = MOJO_ISA::PickAttention;
  table.stream = MOJO_ISA::Stream;
  return table;
}

}  // namespace

const KernelTable kHereKernels = Here();

}  // namespace mojo
