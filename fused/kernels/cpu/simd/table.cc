// The inner loops of one instruction set. CMake compiles this file once per set, with the set's
// compiler flags and two definitions: MOJO_ISA (the namespace) and MOJO_TABLE (the table's name).
#include "cpu/simd/gate.h"
#include "cpu/simd/kernels.h"
#include "cpu/simd/norm.h"
#include "cpu/simd/rotary.h"

namespace mojo {
namespace MOJO_ISA {

template <class T>
void Widened(const void* from, float* to, size_t n) {
  ForEachVector(n, [=](auto lanes, size_t i) MOJO_LAMBDA {
    Store(lanes, to + i, Load(lanes, static_cast<const T*>(from) + i));
  });
}

static void ToFloat32(ElementType type, const void* from, float* to, size_t n) {
  switch (type) {
    case kFloat32:
      return Widened<float>(from, to, n);
    case kFloat16:
      return Widened<Half>(from, to, n);
    case kBFloat16:
      return Widened<BFloat>(from, to, n);
  }
}

}  // namespace MOJO_ISA

#define MOJO_TEXT2(x) #x
#define MOJO_TEXT(x) MOJO_TEXT2(x)

const KernelTable MOJO_TABLE = {MOJO_TEXT(MOJO_ISA), MOJO_ISA::PickNorm, MOJO_ISA::PickGate,
                                MOJO_ISA::PickRotary, MOJO_ISA::ToFloat32};

}  // namespace mojo
