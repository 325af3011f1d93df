// Products of quantized weights, for several ops (quantized_product.cu).
#pragma once

#include "common/room.h"
#include "linear/cuda/quantized.cuh"
#include "moe/cuda/moe.cuh"

namespace mojo {

// QuantizedKind is the use of a product.
enum QuantizedKind {
  kQuantizedLinear,   // of all rows of x, plus bias: y
  kQuantizedGateUp,   // of the choices of experts, activated: by place
  kQuantizedOutputs,  // of activations, plus bias, times the tokens' weights: float32 by choice
};

// QuantizedWay is the kernels that multiply.
enum QuantizedWay {
  kQuantizedDirect,  // of a few rows or choices, without a plan: QuantizedDirect
  kQuantizedHopper,  // by wgmma, on compute capability 9.0: QuantizedHopper
  kQuantizedRows,    // of few rows of activations for each matrix: QuantizedRows
  kQuantizedTiles,   // of many: QuantizedTiles
};

// QuantizedConfig is the choice of kernels for a product, or for both products of experts. Every accepted config is
// correct; only its speed differs. ConfigOfExperts and ConfigOfLinear choose (quantized_product.cu).
struct QuantizedConfig {
  QuantizedWay way;
  int tokens;  // of a tile. kQuantizedHopper: 16, 32 or 128 with MXFP4, 64 or 128 with e4m3
  int split;   // kQuantizedHopper: 1, 2, 4 or 8 blocks share the columns of a place; 0 balances the device
};

// Prepared is activations as tiles take them: their parts as matrices, and by block of 32 columns the rows' steps, and
// by block of a factor their sums.
struct Prepared {
  const void* parts[3];
  float* steps;
  float* sums;
  int stride;  // of steps and sums: rows, up to a multiple of kTileTokens
};

// Tokens of a block, for the kernels of few rows and of many.
constexpr int kFewTokens = 8, kSomeTokens = 32, kTileTokens = 64;

// PutNumber rounds v to element i of a tensor of one of the types.
__device__ __forceinline__ void PutNumber(void* y, size_t i, MojoType type, float v) {
  if (type == kMojoFloat32) {
    static_cast<float*>(y)[i] = v;
  } else if (type == kMojoFloat16) {
    static_cast<Half*>(y)[i] = FromFloat<Half>(v);
  } else {
    static_cast<BFloat*>(y)[i] = FromFloat<BFloat>(v);
  }
}

// QuantizedProduct is one product. With experts, n is of one of them, and their weights follow each other.
struct QuantizedProduct {
  QuantizedKind kind;
  MojoQuantizedWeights weights;
  const void* x;  // [rows, k]
  MojoType type;  // of x
  Activations rounding;
  size_t rows;  // of x: with kQuantizedOutputs as many as there are choices
  void* y;
  MojoType y_type;
  const void* bias;  // of y_type for kQuantizedLinear, else float32 [experts, n]; or null
  MojoMoEArgs moe;   // with experts
  MoEPlan plan;
};

QuantizedConfig ConfigOfExperts(const QuantizedProduct& first, const QuantizedProduct& second);
QuantizedConfig ConfigOfLinear(const QuantizedProduct& p);

// QuantizedRows launches the kernels for few rows, with kFewTokens at once, or kSomeTokens if the kernels have that
// (for bfloat16, not rounded) and kind is kQuantizedLinear; x is aligned to 16 bytes.
cudaError_t QuantizedRows(const QuantizedProduct& p, int tokens, cudaStream_t stream);

// DirectTakes reports whether QuantizedDirect takes a product: up to kFewTokens rows, or few enough choices of experts
// to find without a plan. Then results of kQuantizedGateUp and activations of kQuantizedOutputs are ordered by choice.
bool DirectTakes(const QuantizedProduct& p);
cudaError_t QuantizedDirect(const QuantizedProduct& p, cudaStream_t stream);

// DividePrepared reserves the scratch memory of QuantizedTiles. aligned: x is known to be aligned.
Prepared DividePrepared(const QuantizedProduct& p, bool aligned, Room<256>* room);

// QuantizedTiles launches the way of many rows.
cudaError_t QuantizedTiles(const QuantizedProduct& p, const Prepared& x, cudaStream_t stream);

// Operands are activations as the kernels of compute capability 9.0 read them: bfloat16 with columns swapped within 16,
// or e4m3 and the scales of its blocks, [rows, k / 128].
struct Operands {
  void* numbers;
  float* steps;
};

// HopperTakes reports whether those kernels take a product: MXFP4 with bfloat16 that is not rounded, or e4m3 with
// activations rounded to e4m3, and with pairs if it is the first product of experts.
bool HopperTakes(const QuantizedProduct& p);

// HopperHas reports whether they have tiles of this width whose columns this many blocks share (0: QuantizedHopper
// chooses).
bool HopperHas(const QuantizedProduct& p, int tokens, int split);

// DivideOperands reserves scratch memory for p's activations; PrepareOperands makes them. planned: the previous launch
// is the plan, and x was made before it.
Operands DivideOperands(const QuantizedProduct& p, Room<256>* room);
cudaError_t PrepareOperands(const QuantizedProduct& p, const Operands& x, bool planned, cudaStream_t stream);

// QuantizedHopper launches a product. kQuantizedGateUp writes operands of the second one.
cudaError_t QuantizedHopper(const QuantizedProduct& p, const QuantizedConfig& config, const Operands& x,
                            const Operands& to, cudaStream_t stream);

}  // namespace mojo
