// The steps of a run of QMoE, each cut into tasks that threads take by turns.
#pragma once

#include "linear/cpu/quantized_weights.h"
#include "moe/cpu/experts.h"

namespace mojo {

// QMoEArgs are the arguments of a run.
struct QMoEArgs : ExpertArgs {
  Activations activations = Activations::kFloat;
  QuantizedWeights gate_up{};  // of all experts, one after the other; n counts one expert's rows
  QuantizedWeights down{};
  const float* gate_up_bias = nullptr;  // may be null
  const float* down_bias = nullptr;
};

// QMoEGo is the shared state of the tasks for some tokens. Tokens are gathered in outputs, before it is written.
struct QMoEGo : ExpertPass {
  const QMoEArgs& args;
  bool alone = false;     // one token, with different experts: they share its row
  char* x = nullptr;      // the runs' tokens in tiles, or as float32
  size_t x_bytes = 0;     // of a row
  char* tiles = nullptr;  // activated in tiles, or activated itself if it is not rounded
  size_t tile_bytes = 0;  // of a row

  explicit QMoEGo(const QMoEArgs& a) : ExpertPass(a), args(a) {}
};

// Columns of the activation that a task makes: a block of the second product's.
constexpr size_t kInnerBlock = kCodeBlock;

// Panels of the second product that a task multiplies with.
constexpr size_t kDownPanels = 8;

// GatherTokens rounds the tokens of the runs from begin to end - 1.
void GatherTokens(const QMoEGo& go, size_t begin, size_t end);

// ActivateBlock computes one run's activations of one block of the inner dimension. state is a QMoEGo.
void ActivateBlock(void* state, size_t task);

// RoundActivated rounds the activations of the runs from begin to end - 1.
void RoundActivated(const QMoEGo& go, size_t begin, size_t end);

// ProjectPanels computes one run's outputs of some panels. state is a QMoEGo.
void ProjectPanels(void* state, size_t task);

}  // namespace mojo
