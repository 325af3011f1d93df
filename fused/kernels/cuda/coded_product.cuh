// Products of quantised weights, for the ops that have them (coded_product.cu).
#ifndef MOJO_KERNELS_CUDA_CODED_PRODUCT_CUH_
#define MOJO_KERNELS_CUDA_CODED_PRODUCT_CUH_

#include "common/room.h"
#include "cuda/coded.cuh"
#include "cuda/moe.cuh"

namespace mojo {

// CodedKind is what becomes of a product.
enum CodedKind {
  kCodedLinear,   // of all rows of x, plus bias: y
  kCodedGateUp,   // of the choices of experts, activated: by place
  kCodedOutputs,  // of what is activated, plus bias, times the tokens' weights: float32 by choice
};

// CodedWay is the kernels that multiply.
enum CodedWay {
  kCodedDirect,  // of a few rows or choices, without a plan: CodedDirect
  kCodedHopper,  // by wgmma, on compute capability 9.0: CodedHopper
  kCodedRows,    // of few rows of activations for each matrix: CodedRows
  kCodedTiles,   // of many: CodedTiles
};

// CodedConfig is what can be chosen of a product or of both of experts: whatever takes them is right, and more or less
// fast. ConfigOfExperts and ConfigOfLinear choose (coded_config.cu).
struct CodedConfig {
  CodedWay way;
  int tokens;  // of a tile. kCodedHopper: 16, 32 or 128 with MXFP4, 64 or 128 with e4m3
  int split;   // kCodedHopper: 1, 2, 4 or 8 blocks that share the columns of a place; 0: what balances the device
};

// Prepared is activations as tiles take them: their parts as matrices, and by block of 32 columns the rows' steps, and
// by block of a factor their sums.
struct Prepared {
  const void* parts[3];
  float* steps;
  float* sums;
  int stride;  // of steps and sums: rows, up to a multiple of kTileTokens
};

// Tokens of a block, on the ways of few rows and of many.
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

// CodedProduct is one product. With experts, n is of one of them, and their weights follow each other.
struct CodedProduct {
  CodedKind kind;
  MojoCodedWeights weights;
  const void* x;  // [rows, k]
  MojoType type;  // of x
  MojoRounding rounding;
  size_t rows;  // of x: with kCodedOutputs as many as there are choices
  void* y;
  MojoType y_type;
  const void* bias;  // of y_type for kCodedLinear, else float32 [experts, n]; or null
  MojoMoEArgs moe;   // with experts
  MoEPlan plan;
};

CodedConfig ConfigOfExperts(const CodedProduct& first, const CodedProduct& second);
CodedConfig ConfigOfLinear(const CodedProduct& p);

// CodedRows launches the way of few rows, with kFewTokens at once, or with kSomeTokens where the kernels have that (of
// bfloat16, not rounded) and kind is kCodedLinear; x is aligned to 16 bytes.
cudaError_t CodedRows(const CodedProduct& p, int tokens, cudaStream_t stream);

// DirectTakes reports whether CodedDirect has a product: of up to kFewTokens rows, or so many choices of experts as are
// found without a plan. There results of kCodedGateUp and activations of kCodedOutputs lie by choice.
bool DirectTakes(const CodedProduct& p);
cudaError_t CodedDirect(const CodedProduct& p, cudaStream_t stream);

// DividePrepared takes what CodedTiles needs of scratch memory. x is aligned if that is known.
Prepared DividePrepared(const CodedProduct& p, bool aligned, Room<256>* room);

// CodedTiles launches the way of many rows.
cudaError_t CodedTiles(const CodedProduct& p, const Prepared& x, cudaStream_t stream);

// Operands are activations as the kernels of compute capability 9.0 read them: bfloat16 whose columns are swapped
// within 16, or e4m3 and [rows, k / 128] what their blocks are to be multiplied with.
struct Operands {
  void* numbers;
  float* steps;
};

// HopperTakes reports whether those kernels have a product: of MXFP4 with bfloat16 that is not rounded, or of e4m3 with
// activations rounded to that, and with pairs where it is the first of experts.
bool HopperTakes(const CodedProduct& p);

// HopperHas reports whether they have tiles of that width, whose columns so many blocks share (0: as CodedHopper
// chooses).
bool HopperHas(const CodedProduct& p, int tokens, int split);

// DivideOperands takes what p's activations need of scratch memory; PrepareOperands makes them. planned: the launch
// before is the plan, which came after what made x.
Operands DivideOperands(const CodedProduct& p, Room<256>* room);
cudaError_t PrepareOperands(const CodedProduct& p, const Operands& x, bool planned, cudaStream_t stream);

// CodedHopper launches a product. kCodedGateUp writes operands of the second one.
cudaError_t CodedHopper(const CodedProduct& p, const CodedConfig& config, const Operands& x, const Operands& to,
                        cudaStream_t stream);

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_CODED_PRODUCT_CUH_
