#include "moe/cpu/moe_tasks.h"

#include <algorithm>

#include "cpu/backends.h"

namespace mojo {
namespace {

// Products of a task before activation or summation: tokens times outputs, gate and up.
constexpr size_t kProducts = kMostInRun * kRowBlock;

// Widened returns n numbers as float32, in place or in room.
const float* Widened(ElementType type, const void* from, float* room, size_t n) {
  if (type == kFloat32) return static_cast<const float*>(from);
  TheKernels()->to_float32(type, from, room, n);
  return room;
}

void AddTo(float* y, const float* bias, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] += bias[i];
}

// Block is some outputs of one expert's matrix: first + i * step, for the i below width.
struct Block {
  const ExpertWeights& weights;
  ElementType type;
  size_t expert, outputs, inputs;
  size_t first, step, width;

  const void* Data() const {
    const size_t at = expert * outputs * inputs + (weights.by_rows ? first * inputs : first);
    return At(weights.data, at, type);
  }
};

// Multiply computes the outputs of a block, from args.x to args.y.
void Multiply(const Go& go, const Block& b, ProductArgs args) {
  args.w = b.Data();
  args.by_rows = b.weights.by_rows;
  args.stride = b.weights.by_rows ? b.step * b.inputs : b.outputs;
  args.depth = b.inputs;
  args.width = b.width;
  if (b.inputs > 0) return go.product(args);
  for (size_t t = 0; t < args.tokens; ++t) std::fill_n(args.y + t * args.y_stride, b.width, 0.0f);
}

// MultiplyPanels computes the outputs of a block for all panels of a run, from x to y. next is the block that follows.
void MultiplyPanels(const Go& go, const Block& b, const ExpertRun& run, const float* bias, const float* x, float* y,
                    const Block& next) {
  go.product_of_panels({b.Data(), b.step * b.inputs, bias, x + run.panel * b.inputs * go.lanes, run.panels, b.inputs,
                        b.width, y, next.Data()});
}

// GateUp is the input of a task's activation: blocks of gate and up, their biases.
struct GateUp {
  Block gate, up;
  bool by_turns;  // gate's block has both: interleaved columns lie side by side, and so do their products
  const float *gate_bias, *up_bias;

  GateUp(const Go& go, size_t task)
      : gate{go.args.gate_up,
             go.args.expert_type,
             go.run[task / go.gate_up_blocks].expert,
             0,
             go.args.hidden,
             task % go.gate_up_blocks * go.gate_up_block,
             1,
             0},
        up(gate),
        by_turns(false),
        gate_bias(nullptr),
        up_bias(nullptr) {
    const MoEArgs& a = go.args;
    gate.width = up.width = std::min(go.gate_up_block, a.inner - gate.first);
    gate.outputs = up.outputs = a.gated ? 2 * a.inner : a.inner;
    if (a.gated && a.interleaved) {
      by_turns = !a.gate_up.by_rows;
      gate.first *= 2;
      up.first = gate.first + 1;
      gate.step = up.step = 2;
    } else if (a.gated) {
      up.first += a.inner;
    }
  }

  // ReadBias makes gate_bias and up_bias of the block's width, in room for two.
  void ReadBias(const Go& go, float* room) {
    if (gate.weights.bias == nullptr) return;
    for (const Block* b : {&gate, &up}) {
      for (size_t i = 0; i < b->width; ++i) {
        // One at a time: they may be interleaved.
        const size_t at = b->expert * b->outputs + b->first + i * b->step;
        TheKernels()->to_float32(b->type, At(b->weights.bias, at, b->type), room + (b == &up ? kColumnBlock : 0) + i,
                                 1);
      }
    }
    gate_bias = room;
    up_bias = go.args.gated ? room + kColumnBlock : nullptr;
  }
};

// ActivatePanels activates the panels of a run. ones has a 1 for each product of a panel.
void ActivatePanels(const Go& go, const ExpertRun& run, const GateUp& g, const GateUp& next, const float* ones,
                    float* products) {
  const MoEArgs& a = go.args;
  const size_t width = g.gate.width, size = width * go.lanes;
  float* const up = products + run.panels * size;
  MultiplyPanels(go, g.gate, run, g.gate_bias, go.x_panels, products, a.gated ? g.up : next.gate);
  if (a.gated) MultiplyPanels(go, g.up, run, g.up_bias, go.x_panels, up, next.gate);
  const size_t first = a.gated && a.interleaved ? g.gate.first / 2 : g.gate.first;
  for (size_t p = 0; p < run.panels; ++p) {
    float* y = go.activated_panels + ((run.panel + p) * a.inner + first) * go.lanes;
    go.gate({products + p * size, a.gated ? up + p * size : ones, y, a.alpha, a.limit, a.up_offset}, 0, size);
  }
}

// ActivateRows activates the tokens of a run that are in no panel.
void ActivateRows(const Go& go, const ExpertRun& run, const GateUp& g, const float* ones, float* products) {
  const MoEArgs& a = go.args;
  const size_t parts = a.gated ? 2 : 1, n = g.gate.width;
  const size_t first = a.gated && a.interleaved ? g.gate.first / 2 : g.gate.first;
  float gate[kColumnBlock], up[kColumnBlock];
  const float* x[kMostInRun];
  const size_t most = kProducts / (parts * go.gate_up_block);
  for (size_t done = run.count - run.rest; done < run.count; done += most) {
    const size_t tokens = std::min(most, run.count - done), place = run.first + done;
    for (size_t m = 0; m < tokens; ++m) x[m] = go.x + go.choice[place + m] / a.top_k * Padded(a.hidden);
    ProductArgs p{};
    p.x = x;
    p.tokens = tokens;
    p.y = products;
    p.y_stride = parts * n;
    if (g.by_turns) {
      Block both = g.gate;
      both.step = 1;
      both.width *= 2;
      Multiply(go, both, p);
    } else {
      Multiply(go, g.gate, p);
      p.y += n;
      if (a.gated) Multiply(go, g.up, p);
    }
    for (size_t m = 0; m < tokens; ++m) {
      float* y = products + m * parts * n;
      float* of_gate = y;
      const float* of_up = a.gated ? y + n : ones;
      if (g.by_turns) {
        for (size_t i = 0; i < n; ++i) gate[i] = y[2 * i], up[i] = y[2 * i + 1];
        of_gate = gate;
        of_up = up;
      }
      if (g.gate_bias != nullptr) AddTo(of_gate, g.gate_bias, n);
      if (g.up_bias != nullptr) AddTo(g.by_turns ? up : y + n, g.up_bias, n);
      go.gate({of_gate, of_up, go.activated + (place + m) * Padded(a.inner) + first, a.alpha, a.limit, a.up_offset}, 0,
              n);
    }
  }
}

// Down is the block of a task of the second product.
Block Down(const Go& go, size_t task) {
  const MoEArgs& a = go.args;
  const size_t first = task % go.down_blocks * go.down_block;
  return {a.down,
          a.expert_type,
          go.run[task / go.down_blocks].expert,
          a.hidden,
          a.inner,
          first,
          1,
          std::min(go.down_block, a.hidden - first)};
}

}  // namespace

void WidenTokens(const Go& go, size_t begin, size_t end) {
  const MoEArgs& a = go.args;
  for (size_t t = begin; t < end; ++t) {
    TheKernels()->to_float32(a.x_type, At(a.x, (go.first_token + t) * a.hidden, a.x_type), go.x + t * Padded(a.hidden),
                             a.hidden);
  }
}

void FillPanels(const Go& go, size_t begin, size_t end) {
  const MoEArgs& a = go.args;
  for (size_t r = begin; r < end; ++r) {
    const ExpertRun& run = go.run[r];
    for (size_t p = 0; p < run.panels; ++p) {
      const float* tokens[kMostLanes];
      for (size_t lane = 0; lane < go.lanes; ++lane) {
        // Empty lanes hold the last token again.
        const size_t place = run.first + std::min(p * go.lanes + lane, run.count - 1);
        tokens[lane] = go.x + go.choice[place] / a.top_k * Padded(a.hidden);
      }
      TheKernels()->to_panel(tokens, go.x_panels + (run.panel + p) * a.hidden * go.lanes, a.hidden);
    }
  }
}

void Activate(void* state, size_t task) {
  const Go& go = *static_cast<const Go*>(state);
  const ExpertRun& run = go.run[task / go.gate_up_blocks];
  float products[kProducts], bias[2 * kColumnBlock], ones[kRowBlock / 2 * kMostLanes];
  if (!go.args.gated) std::fill_n(ones, sizeof(ones) / sizeof(float), 1.0f);
  GateUp gate_up(go, task);
  gate_up.ReadBias(go, bias);
  if (run.panels > 0) {
    const size_t last = go.runs * go.gate_up_blocks - 1;
    ActivatePanels(go, run, gate_up, GateUp(go, std::min(task + 1, last)), ones, products);
  }
  if (run.rest > 0) ActivateRows(go, run, gate_up, ones, products);
}

void Project(void* state, size_t task) {
  const Go& go = *static_cast<const Go*>(state);
  const MoEArgs& a = go.args;
  const ExpertRun& run = go.run[task / go.down_blocks];
  const Block down = Down(go, task);
  const size_t n = down.width;
  float room[kColumnBlock];
  const float* bias = nullptr;
  if (a.down.bias != nullptr) {
    bias = Widened(a.expert_type, At(a.down.bias, down.expert * a.hidden + down.first, a.expert_type), room, n);
  }
  if (run.panels > 0) {
    float products[kProducts];
    const size_t last = go.runs * go.down_blocks - 1;
    MultiplyPanels(go, down, run, bias, go.activated_panels, products, Down(go, std::min(task + 1, last)));
    for (size_t p = 0; p < run.panels; ++p) {
      float nobody[kRowBlock];
      float* tokens[kMostLanes];
      for (size_t lane = 0; lane < go.lanes; ++lane) {
        const size_t m = p * go.lanes + lane;
        tokens[lane] = m < run.count ? go.outputs + (run.first + m) * Padded(a.hidden) + down.first : nobody;
      }
      TheKernels()->from_panel(products + p * n * go.lanes, tokens, n);
    }
  }
  if (run.rest == 0) return;
  const size_t first = run.first + run.count - run.rest;
  const float* x[kMostInRun];
  for (size_t m = 0; m < run.rest; ++m) x[m] = go.activated + (first + m) * Padded(a.inner);
  ProductArgs p{};
  p.x = x;
  p.tokens = run.rest;
  p.y_stride = Padded(a.hidden);
  p.y = go.outputs + first * p.y_stride + down.first;
  Multiply(go, down, p);
  if (bias == nullptr) return;
  for (size_t m = 0; m < run.rest; ++m) AddTo(p.y + m * p.y_stride, bias, n);
}

}  // namespace mojo
