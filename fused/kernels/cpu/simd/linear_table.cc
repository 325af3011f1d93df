// The inner loops of Linear and Embedding for one instruction set; compiled like table.cc.
#include "cpu/simd/linear.h"

namespace mojo {
namespace MOJO_ISA {

inline void RoundActivations(const QuantizeArgs& args, size_t first, size_t end) {
  (args.activations == Activations::kFp8 ? RoundFloat8 : Quantize)(args, first, end);
}

inline void DecodeAnyRow(const QuantizedWeights& w, size_t row, float* to) {
  (w.code == Code::kE4m3 ? DecodeFloat8Row : DecodeRow)(w, row, to);
}

}  // namespace MOJO_ISA

#define MOJO_TEXT2(x) #x
#define MOJO_TEXT(x) MOJO_TEXT2(x)

const LinearFns MOJO_TABLE = {MOJO_TEXT(MOJO_ISA), MOJO_ISA::RowBytes, MOJO_ISA::RoundActivations,
                              MOJO_ISA::MultiplyPanels, MOJO_ISA::DecodeAnyRow};

}  // namespace mojo
