// A run of MoE on the CPU, once its inputs are known to be right, and its steps, each cut into tasks that threads take
// by turns.
#pragma once

#include "cpu/simd/kernels.h"
#include "moe/cpu/experts.h"

namespace mojo {

// ExpertWeights is one matrix per expert, one after the other, and perhaps a bias for each.
struct ExpertWeights {
  const void* data;
  const void* bias;  // may be null
  bool by_rows;      // out_in
};

// MoEArgs are the arguments of a run.
struct MoEArgs : ExpertArgs {
  ElementType expert_type = kFloat32;  // of gate_up, down and their biases
  ExpertWeights gate_up{};
  ExpertWeights down{};
};

// Padded is the distance of rows of so many numbers in scratch memory: an odd number of cache lines. At a power of two,
// equal columns of all rows would compete for a few cache sets.
inline size_t Padded(size_t width) { return ((width + 15) / 16 | 1) * 16; }

// Go is the shared state of the tasks for some tokens. Rows of x, activated and outputs are Padded.
struct Go : ExpertPass {
  const MoEArgs& args;
  ProductFn product = nullptr;
  PanelFn product_of_panels = nullptr;
  size_t lanes = 0;                   // of a panel; 0: no panels
  float* x = nullptr;                 // [tokens, hidden]
  float* x_panels = nullptr;          // [panel, hidden, lanes]; outputs may be in its memory
  float* activated_panels = nullptr;  // [panel, inner, lanes]
  size_t gate_up_blocks = 0, gate_up_block = 0;
  size_t down_blocks = 0, down_block = 0;

  explicit Go(const MoEArgs& a) : ExpertPass(a), args(a) {}
};

// Outputs of a matrix that one task computes. Columns are read in longer pieces of memory.
constexpr size_t kRowBlock = 64;
constexpr size_t kColumnBlock = 256;

// WidenTokens writes the tokens from begin to end - 1 as float32.
void WidenTokens(const Go& go, size_t begin, size_t end);

// FillPanels puts the tokens of the runs from begin to end - 1 into their panels.
void FillPanels(const Go& go, size_t begin, size_t end);

// Activate computes one run's activations of one block of the inner dimension. state is a Go.
void Activate(void* state, size_t task);

// Project computes one run's outputs of one block of the hidden dimension. state is a Go.
void Project(void* state, size_t task);

// RunMoE computes y. Scratch memory comes from memory and goes back to it.
OrtStatus* RunMoE(const Api& api, OrtKernelContext* context, const HostMemory& memory, const MoEArgs& args);

}  // namespace mojo
