// Products by the processor's multiplications of bfloat16; compiled like table.cc.
#include "cpu/simd/bfloat.h"

namespace mojo {

const BFloatFns kVectorBFloat = {"avx512_bf16", MOJO_ISA::RoundToPairs, MOJO_ISA::RoundPanel, MOJO_ISA::MultiplyPairs,
                                 nullptr};
const BFloatFns kTileBFloat = {"amx_bf16", MOJO_ISA::RoundToPairs, MOJO_ISA::RoundPanel, MOJO_ISA::MultiplyPairs,
                               MOJO_ISA::MultiplyPairPanels};

}  // namespace mojo
