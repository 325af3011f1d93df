// The interface between Linear and Embedding and their inner loops, which are compiled once per instruction set from
// linear_table.cc. Like kernels.h, it holds plain data only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cpu/simd/kernels.h"

namespace mojo {

// ScaleKind is the encoding of scales.
enum ScaleKind { kFloatScales, kHalfScales, kTwofoldScales, kExponentScales };

// Rows of weights, and columns of codes, that lie side by side.
constexpr size_t kPanel = 16;
constexpr size_t kCodeBlock = 32;
constexpr size_t kSuperBlock = 256;
constexpr size_t kFloatBlock = 128;  // of Code::kE4m3 and Activations::kFp8

// QuantizedWeights are weights as they are stored; docs/ops.md has their layout.
struct QuantizedWeights {
  const uint8_t* codes;
  const void* scale;
  const void* minus;        // may be null
  const void* super_scale;  // with kTwofoldScales
  const void* super_minus;  // with kTwofoldScales and minus
  size_t n, k, block;
  Code code;
  ScaleKind scales;
  float zero;
  float shift;  // the middle of all codes minus zero
};

// Rows of activations that are rounded to integers lie in tiles. For each block of columns a tile of t rows has 32
// codes for each row, then, t numbers each: the factors, and for each block of weights the initial values of the sums
// of products, and the sums of the rounded activations. Codes have 16 bits, or 8 if the instructions multiply bytes.
// Rows that are rounded to floats of 8 bits are float32, one after the other.
struct QuantizeArgs {
  const void* x;  // row 0
  ElementType type;
  Activations activations;
  const QuantizedWeights* weights;
  size_t rows;  // of all tiles
  char* to;     // row 0
};

// MultiplyArgs are the products of some rows with some panels.
struct MultiplyArgs {
  const QuantizedWeights* weights;
  Activations activations;
  const void* x;  // row 0: tiles, or float32 if they are not rounded
  size_t rows;    // of all tiles
  size_t first_row, end_row;
  size_t first_panel, end_panel;
  const float* bias;  // [n], may be null
  void* y;            // row 0, of n numbers
  ElementType type;   // of y
};

// LinearFns are the loops of one instruction set.
struct LinearFns {
  const char* name;
  // row_bytes is the size of a row of activations in a tile.
  size_t (*row_bytes)(const QuantizedWeights& weights, Activations activations);
  // quantize rounds the rows from first to end - 1; first is a multiple of kTileRows, or 0.
  void (*quantize)(const QuantizeArgs& args, size_t first, size_t end);
  // multiply takes rows from first_row on, a multiple of kTileRows.
  void (*multiply)(const MultiplyArgs& args);
  // decode writes row number row of the weights.
  void (*decode)(const QuantizedWeights& weights, size_t row, float* to);
};

// A multiple of the rows of any tile except the last, for every instruction set.
constexpr size_t kTileRows = 8;

// Rows that multiply takes at a time.
constexpr size_t kLinearRows = 128;

extern const LinearFns kPortableLinear;
#if defined(MOJO_X86)
extern const LinearFns kAVX2Linear;
extern const LinearFns kAVX512VNNILinear;
#endif
#if defined(MOJO_DOTPROD)
extern const LinearFns kDotProdLinear;
#endif

}  // namespace mojo
