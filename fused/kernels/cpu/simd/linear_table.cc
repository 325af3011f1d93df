// The inner loops of Linear and Embedding for one instruction set; compiled as table.cc is.
#include "cpu/simd/linear.h"

namespace mojo {

#define MOJO_TEXT2(x) #x
#define MOJO_TEXT(x) MOJO_TEXT2(x)

const LinearFns MOJO_TABLE = {MOJO_TEXT(MOJO_ISA), MOJO_ISA::RowBytes, MOJO_ISA::Quantise, MOJO_ISA::MultiplyPanels,
                              MOJO_ISA::DecodeRow};

}  // namespace mojo
