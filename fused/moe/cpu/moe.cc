// MoE on the CPU: its steps, each cut into tasks that threads take by turns.
#include "moe/cpu/moe.h"

namespace mojo {
namespace {

// Padded is the distance of rows of so many numbers in scratch memory: an odd number of cache lines. At a power of two,
// equal columns of all rows would compete for a few cache sets.
inline size_t Padded(size_t width) { return ((width + 15) / 16 | 1) * 16; }

// Go is the shared state of the tasks for some tokens. Rows of x, activated and outputs are Padded. If products round
// their operands, the rows and panels of x and activated hold pairs.
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

  // Words is the size of a row of so many numbers in panels of x or activated.
  size_t Words(size_t numbers) const {
    return args.bfloat == nullptr ? numbers : (numbers + kPairStep - 1) / kPairStep * kPairStep / 2;
  }
};

// Outputs of a matrix that one task computes. Columns are read in longer pieces of memory.
constexpr size_t kRowBlock = 64;
constexpr size_t kColumnBlock = 256;

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
  go.product_of_panels({b.Data(), b.step * b.inputs, bias, x + run.panel * go.Words(b.inputs) * go.lanes, run.panels,
                        b.inputs, b.width, y, next.Data()});
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
    float* const panel = go.activated_panels + (run.panel + p) * go.Words(a.inner) * go.lanes;
    float exact[kRowBlock / 2 * kMostLanes];
    float* const y = a.bfloat == nullptr ? panel + first * go.lanes : exact;
    go.gate({products + p * size, a.gated ? up + p * size : ones, y, a.alpha, a.limit, a.up_offset}, 0, size);
    if (a.bfloat != nullptr) a.bfloat->round_panel(exact, panel + first / 2 * go.lanes, width);
  }
}

// ActivateRows activates the tokens of a run that are in no panel.
void ActivateRows(const Go& go, const ExpertRun& run, const GateUp& g, const float* ones, float* products) {
  const MoEArgs& a = go.args;
  const size_t parts = a.gated ? 2 : 1, n = g.gate.width;
  const size_t first = a.gated && a.interleaved ? g.gate.first / 2 : g.gate.first;
  float gate[kColumnBlock], up[kColumnBlock], exact[kColumnBlock];
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
      float* const row = go.activated + (place + m) * Padded(a.inner);
      float* const to = a.bfloat == nullptr ? row + first : exact;
      go.gate({of_gate, of_up, to, a.alpha, a.limit, a.up_offset}, 0, n);
      if (a.bfloat != nullptr) a.bfloat->round(kFloat32, exact, row + first / 2, n);
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

// WidenTokens writes the tokens from begin to end - 1 as float32, or rounds them.
void WidenTokens(const Go& go, size_t begin, size_t end) {
  const MoEArgs& a = go.args;
  for (size_t t = begin; t < end; ++t) {
    const void* const from = At(a.x, (go.first_token + t) * a.hidden, a.x_type);
    (a.bfloat == nullptr ? TheKernels()->to_float32 : a.bfloat->round)(a.x_type, from, go.x + t * Padded(a.hidden),
                                                                       a.hidden);
  }
}

// FillPanels puts the tokens of the runs from begin to end - 1 into their panels.
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
      TheKernels()->to_panel(tokens, go.x_panels + (run.panel + p) * go.Words(a.hidden) * go.lanes, go.Words(a.hidden));
    }
  }
}

// Activate computes one run's activations of one block of the inner dimension. state is a Go.
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

// Project computes one run's outputs of one block of the hidden dimension. state is a Go.
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
      void* tokens[kMostLanes];
      for (size_t lane = 0; lane < go.lanes; ++lane) {
        const size_t m = p * go.lanes + lane;
        tokens[lane] = m < run.count ? go.outputs + (run.first + m) * Padded(a.hidden) + down.first : nobody;
      }
      TheKernels()->from_panel(kFloat32)(products + p * n * go.lanes, nullptr, tokens, n);
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

// Blocks is how many blocks cover so many outputs.
size_t Blocks(size_t outputs, size_t block) { return (outputs + block - 1) / block; }

// TakeRoom divides scratch memory for so many tokens.
void TakeRoom(size_t tokens, Go* go, HostRoom* room) {
  const MoEArgs& a = go->args;
  const size_t choices = tokens * a.top_k;
  const size_t in_panels = MostPanels(choices, go->lanes) * go->lanes;
  const size_t inner = choices > 0 ? Padded(a.inner) : 0;
  go->TakeRoom(a, choices, room);
  go->x = room->Take<float>(tokens * Padded(a.hidden));
  go->activated = room->Take<float>(choices * inner);
  go->activated_panels = room->Take<float>(in_panels * inner);
  // Panels of x are not needed once outputs are written.
  go->outputs = go->x_panels = room->Take<float>(std::max(in_panels, choices) * Padded(a.hidden));
}

// Work computes the tokens of one go.
OrtStatus* Work(const Api& api, OrtKernelContext* context, Go* go) {
  const MoEArgs& a = go->args;
  go->Sort(a, go->lanes, Padded(a.hidden));
  if (go->runs == 0) return nullptr;
  if (OrtStatus* s = RunInTasks(api, context, WidenTokens, *go, go->tokens, a.hidden)) return s;
  if (OrtStatus* s = RunInTasks(api, context, FillPanels, *go, go->runs, go->places / go->runs * a.hidden)) return s;
  if (OrtStatus* s = RunExpertTasks(api, context, Activate, go->runs * go->gate_up_blocks, go)) return s;
  return RunExpertTasks(api, context, Project, go->runs * go->down_blocks, go);
}

// MoEKernel is the state of one node.
struct MoEKernel : ScratchNode<MoEAttributes> {
  const BFloatFns* bfloat = nullptr;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = BFloatProducts(init, &bfloat)) return s;
    return ScratchNode::Init(init);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    MoECall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    const MoEShape shape = ShapeOf(call.sizes);
    const auto* ids = call.Get<int64_t>(kMoEIds);
    if (OrtStatus* s = CheckIds(api, kMoE, ids, shape)) return s;
    MoEArgs args;
    if (OrtStatus* s = call.Make(0, &args.y)) return s;
    args.x_type = Input(kMoEX);
    args.weights_type = Input(kMoEWeights);
    args.expert_type = Input(kMoEGateUp);
    args.x = call.data[kMoEX];
    args.weights = call.data[kMoEWeights];
    args.ids = ids;
    args.gate_up = {call.data[kMoEGateUp], call.data[kMoEGateUpBias], !attributes.gate_up_in_out};
    args.down = {call.data[kMoEDown], call.data[kMoEDownBias], !attributes.down_in_out};
    args.Set(shape, attributes.gate, attributes.packing);
    if (args.expert_type == kBFloat16) args.bfloat = bfloat;
    return RunMoE(api, context, memory, args);
  }
};

}  // namespace

OrtStatus* RunMoE(const Api& api, OrtKernelContext* context, const HostMemory& memory, const MoEArgs& args) {
  const MoEArgs& a = args;
  if (a.tokens == 0 || a.hidden == 0) return nullptr;
  // Panels are for weights by rows.
  const KernelTable& kernels = *TheKernels();
  const bool panels = a.gate_up.by_rows && a.down.by_rows && (a.bfloat == nullptr || a.bfloat->panels != nullptr);
  const size_t lanes = panels ? kernels.lanes : 0;
  // The bytes of one token. If there is a choice, hidden and top_k are dimensions of tensors in memory; inner and
  // experts need not be, if the other one is 0.
  constexpr size_t kMost = PTRDIFF_MAX / 32;
  size_t token_bytes = (Padded(a.hidden) + 16) * sizeof(float);
  if (a.top_k > 0) {
    size_t choice_bytes;
    if (a.inner > kMost || a.experts > kMost) return OutOfMemory(api);
    // A panel is made for three quarters of its tokens or more.
    const size_t inner = Padded(a.inner), hidden = Padded(a.hidden);
    const size_t numbers = lanes > 0 ? (inner * 7 + hidden * 4) / 3 : inner + hidden;
    if (__builtin_mul_overflow(numbers + 16, sizeof(float), &choice_bytes) ||
        __builtin_mul_overflow(choice_bytes, a.top_k, &choice_bytes) || choice_bytes > kMost) {
      return OutOfMemory(api);
    }
    token_bytes += choice_bytes;
  }
  Go go(a);
  go.product = kernels.product(a.expert_type);
  go.product_of_panels = kernels.panels(a.expert_type);
  if (a.bfloat != nullptr) {
    go.product = a.bfloat->product;
    go.product_of_panels = a.bfloat->panels;
  }
  go.lanes = lanes;
  go.gate_up_block = a.gate_up.by_rows ? kRowBlock / 2 : kColumnBlock / 2;
  go.gate_up_blocks = Blocks(a.inner, go.gate_up_block);
  go.down_block = a.down.by_rows ? kRowBlock : kColumnBlock;
  go.down_blocks = Blocks(a.hidden, go.down_block);
  return RunPasses(api, context, memory, token_bytes, TakeRoom, Work, &go);
}

const Backend kCPUMoE = MakeBackend<MoEKernel>(nullptr);

}  // namespace mojo
