// The steps of a run of QMoE, each cut into tasks that threads take by turns.
#ifndef MOJO_KERNELS_CPU_QMOE_TASKS_H_
#define MOJO_KERNELS_CPU_QMOE_TASKS_H_

#include "cpu/moe_plan.h"
#include "cpu/quantized_weights.h"

namespace mojo {

// QMoEArgs is what a run computes with. Buffers are dense.
struct QMoEArgs {
  ElementType x_type;  // of x and y
  ElementType weights_type;
  ActivationKind activations;
  const void* x;             // [tokens, hidden]
  const void* weights;       // [tokens, top_k]
  const int64_t* ids;        // [tokens, top_k], each an expert
  QuantizedWeights gate_up;  // of all experts, one after the other; n is that of one
  QuantizedWeights down;
  const float* gate_up_bias;  // null: none
  const float* down_bias;
  void* y;  // [tokens, hidden]
  size_t tokens;
  size_t top_k;
  size_t experts;
  size_t hidden;
  size_t inner;
  bool gated;        // there are gate and up; otherwise one product, activated as a whole
  bool interleaved;  // gate and up by turns, not one after the other
  GateKind activation;
  float alpha;
  float limit;
  float up_offset;
  size_t scratch_bytes;  // what tokens beyond this need waits for a second go, which reads the weights again
};

// QMoEGo is what the tasks of a number of tokens share. Rows are in the order of places.
struct QMoEGo {
  const QMoEArgs& args;
  GateFn gate;
  WeightedSumFn weighted_sum;
  size_t first_token, tokens;
  size_t runs;
  const ExpertRun* run;
  const size_t* choice;  // per place
  bool alone;            // there is one token, which no expert has twice: its row is every expert's
  char* x;               // the runs' tokens in tiles, or as float32
  size_t x_bytes;        // of a row
  float* activated;      // [place, inner]
  char* tiles;           // the same in tiles; activated where it stays as it is
  size_t tile_bytes;     // of a row
  float* outputs;        // [place, hidden]; what tokens are gathered in before
  const float* weights;  // per choice
  const float** rows;    // per choice, its row of outputs
};

// Columns of what is activated that a task makes: a block of the second product's.
constexpr size_t kInnerBlock = kCodeBlock;

// Panels of the second product that a task multiplies with.
constexpr size_t kDownPanels = 8;

// GatherTokens rounds the tokens of the runs from begin to end - 1.
void GatherTokens(const QMoEGo& go, size_t begin, size_t end);

// ActivateBlock computes one run's activations of one block of the inner dimension. state is a QMoEGo.
void ActivateBlock(void* state, size_t task);

// RoundActivated rounds what the runs from begin to end - 1 have activated.
void RoundActivated(const QMoEGo& go, size_t begin, size_t end);

// ProjectPanels computes one run's outputs of some panels. state is a QMoEGo.
void ProjectPanels(void* state, size_t task);

// AddOutputs writes y of the tokens from begin to end - 1.
void AddOutputs(const QMoEGo& go, size_t begin, size_t end);

}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_QMOE_TASKS_H_
