// Which instruction set the CPU kernels use.
#ifndef MOJO_KERNELS_CPU_ISA_H_
#define MOJO_KERNELS_CPU_ISA_H_

#include "cpu/simd/kernels.h"

namespace mojo {

// BestKernels is the best table that this machine runs, not above cap. cap is "portable", "avx2",
// "avx512", or null or empty for no cap. Returns null for any other cap.
const KernelTable* BestKernels(const char* cap);

}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_ISA_H_
