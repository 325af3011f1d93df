// The instruction set of the CPU kernels.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/quantized.h"

namespace mojo {

// BestKernels is the best table that this machine runs, not above cap. cap is "portable", "avx2",
// "avx512", or null or empty for no cap. Returns null for any other cap.
const KernelTable* BestKernels(const char* cap);

// BestLinear is the same for the loops of Linear, whose AVX-512 needs VNNI too. On arm64, without a cap, it takes the
// loops with products of bytes (SDOT) if the machine has them.
const LinearFns* BestLinear(const char* cap);

// BestBFloat is the best products with numbers rounded to bfloat16 for this machine: by AMX, else by AVX512-BF16. It is
// null if the machine has neither, or cap excludes AVX-512.
const BFloatFns* BestBFloat(const char* cap);

// StreamsRows reports whether few rows of X read weights by rows faster as one stream (product_of_few) than by tiles
// (product) on this machine: on all but Intel's processors with AVX-512.
bool StreamsRows(const KernelTable& kernels);

}  // namespace mojo
