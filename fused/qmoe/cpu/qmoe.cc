// QMoE on the CPU. Like MoE, it sorts choices by expert. It rounds the tokens of each expert into tiles and multiplies
// them with the expert's panels, read in place.
#include "qmoe/common/qmoe.h"

#include <string.h>

#include "linear/cpu/quantized_weights.h"
#include "moe/cpu/experts.h"

namespace mojo {
namespace {

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

// Multiply computes some rows of a run, from number first on, times panels: y has as many columns as those rows.
void Multiply(const QMoEGo& go, const QuantizedWeights& panels, const float* bias, const char* x, size_t first,
              size_t count, size_t rows, float* y) {
  MultiplyArgs m{};
  m.weights = &panels;
  m.activations = go.args.activations;
  m.x = x + first * TheLinear()->row_bytes(panels, m.activations);
  m.rows = count - first;
  m.end_row = rows;
  m.end_panel = panels.n / kPanel;
  m.bias = bias;
  m.y = y;
  m.type = kFloat32;
  TheLinear()->multiply(m);
}

const float* Forward(const float* bias, size_t by) { return bias == nullptr ? nullptr : bias + by; }

// GatherTokens rounds the tokens of the runs from begin to end - 1.
void GatherTokens(const QMoEGo& go, size_t begin, size_t end) {
  const QMoEArgs& a = go.args;
  const size_t row = a.hidden * SizeOf(a.x_type);
  for (size_t r = begin; r < (go.alone ? std::min<size_t>(end, 1) : end); ++r) {
    const ExpertRun& run = go.run[r];
    const auto token = [&](size_t m) {
      return static_cast<const char*>(a.x) + (go.first_token + go.choice[run.first + m] / a.top_k) * row;
    };
    char* to = go.x + run.first * go.x_bytes;
    if (a.activations == Activations::kFloat) {
      for (size_t m = 0; m < run.count; ++m) {
        TheKernels()->to_float32(a.x_type, token(m), reinterpret_cast<float*>(to + m * go.x_bytes), a.hidden);
      }
      continue;
    }
    const char* rows = token(0);
    if (run.count > 1) {
      char* gathered = reinterpret_cast<char*>(go.outputs + run.first * a.hidden);
      for (size_t m = 0; m < run.count; ++m) memcpy(gathered + m * row, token(m), row);
      rows = gathered;
    }
    TheLinear()->quantize({rows, a.x_type, a.activations, &a.gate_up, run.count, to}, 0, run.count);
  }
}

// ActivateBlock computes one run's activations of one block of the inner dimension. state is a QMoEGo.
void ActivateBlock(void* state, size_t task) {
  const QMoEGo& go = *static_cast<const QMoEGo*>(state);
  const QMoEArgs& a = go.args;
  const size_t blocks = a.inner / kInnerBlock, first = task % blocks * kInnerBlock;
  const ExpertRun& run = go.run[task / blocks];
  const char* x = go.x + (go.alone ? 0 : run.first) * go.x_bytes;
  const size_t panel = run.expert * (a.gate_up.n / kPanel), width = a.interleaved ? 2 * kInnerBlock : kInnerBlock;
  const size_t gate = a.interleaved ? 2 * first : first;
  const float* bias = Forward(a.gate_up_bias, run.expert * a.gate_up.n);
  const QuantizedWeights gates = PanelsOf(a.gate_up, panel + gate / kPanel, width / kPanel);
  const QuantizedWeights ups = PanelsOf(a.gate_up, panel + (a.inner + first) / kPanel, kInnerBlock / kPanel);
  float products[kLinearRows * 2 * kInnerBlock], halves[kLinearRows * 2 * kInnerBlock];
  if (!a.gated) std::fill_n(halves + kLinearRows * kInnerBlock, kLinearRows * kInnerBlock, 1.0f);
  for (size_t done = 0; done < run.count; done += kLinearRows) {
    const size_t rows = std::min(kLinearRows, run.count - done), n = rows * kInnerBlock;
    const float *g = products, *u = halves + kLinearRows * kInnerBlock;
    Multiply(go, gates, Forward(bias, gate), x, done, run.count, rows, products);
    if (a.interleaved) {
      for (size_t i = 0; i < n; ++i) {
        halves[i] = products[2 * i];
        halves[kLinearRows * kInnerBlock + i] = products[2 * i + 1];
      }
      g = halves;
    } else if (a.gated) {
      Multiply(go, ups, Forward(bias, a.inner + first), x, done, run.count, rows, products + n);
      u = products + n;
    }
    float activated[kLinearRows * kInnerBlock];
    go.gate({g, u, activated, a.alpha, a.limit, a.up_offset}, 0, n);
    for (size_t m = 0; m < rows; ++m) {
      memcpy(go.activated + (run.first + done + m) * a.inner + first, activated + m * kInnerBlock,
             kInnerBlock * sizeof(float));
    }
  }
}

// RoundActivated rounds the activations of the runs from begin to end - 1.
void RoundActivated(const QMoEGo& go, size_t begin, size_t end) {
  const QMoEArgs& a = go.args;
  for (size_t r = begin; r < end; ++r) {
    const ExpertRun& run = go.run[r];
    TheLinear()->quantize({go.activated + run.first * a.inner, kFloat32, a.activations, &a.down, run.count,
                           go.tiles + run.first * go.tile_bytes},
                          0, run.count);
  }
}

// ProjectPanels computes one run's outputs of some panels. state is a QMoEGo.
void ProjectPanels(void* state, size_t task) {
  const QMoEGo& go = *static_cast<const QMoEGo*>(state);
  const QMoEArgs& a = go.args;
  const size_t panels = a.hidden / kPanel, groups = (panels + kDownPanels - 1) / kDownPanels;
  const ExpertRun& run = go.run[task / groups];
  const size_t first = task % groups * kDownPanels, count = std::min(kDownPanels, panels - first);
  const QuantizedWeights weights = PanelsOf(a.down, run.expert * panels + first, count);
  const float* bias = Forward(a.down_bias, run.expert * a.hidden + first * kPanel);
  float products[kLinearRows * kDownPanels * kPanel];
  for (size_t done = 0; done < run.count; done += kLinearRows) {
    const size_t rows = std::min(kLinearRows, run.count - done);
    Multiply(go, weights, bias, go.tiles + run.first * go.tile_bytes, done, run.count, rows, products);
    for (size_t m = 0; m < rows; ++m) {
      memcpy(go.outputs + (run.first + done + m) * a.hidden + first * kPanel, products + m * weights.n,
             weights.n * sizeof(float));
    }
  }
}

// TakeRoom divides scratch memory for so many tokens.
void TakeRoom(size_t tokens, QMoEGo* go, HostRoom* room) {
  const QMoEArgs& a = go->args;
  const size_t choices = tokens * a.top_k;
  go->TakeRoom(a, choices, room);
  go->x = room->Take<char>(choices * go->x_bytes);
  go->activated = room->Take<float>(choices * a.inner);
  const bool as_they_are = a.activations == Activations::kFloat;
  go->tiles = as_they_are ? reinterpret_cast<char*>(go->activated) : room->Take<char>(choices * go->tile_bytes);
  go->outputs = room->Take<float>(choices * a.hidden);
}

// Work computes the tokens of one go.
OrtStatus* Work(const Api& api, OrtKernelContext* context, QMoEGo* go) {
  const QMoEArgs& a = go->args;
  go->Sort(a, 0, a.hidden);
  if (go->runs == 0) return nullptr;
  go->alone = go->tokens == 1 && go->runs == go->places;
  const size_t rows = go->places / go->runs;
  const size_t blocks = a.inner / kInnerBlock, groups = (a.hidden / kPanel + kDownPanels - 1) / kDownPanels;
  if (OrtStatus* s = RunInTasks(api, context, GatherTokens, *go, go->runs, rows * a.hidden)) return s;
  if (OrtStatus* s = RunExpertTasks(api, context, ActivateBlock, go->runs * blocks, go)) return s;
  if (a.activations != Activations::kFloat) {
    if (OrtStatus* s = RunInTasks(api, context, RoundActivated, *go, go->runs, rows * a.inner)) return s;
  }
  return RunExpertTasks(api, context, ProjectPanels, go->runs * groups, go);
}

OrtStatus* RunQMoE(const Api& api, OrtKernelContext* context, const HostMemory& memory, const QMoEArgs& a) {
  if (a.tokens == 0) return nullptr;
  QMoEGo go(a);
  go.x_bytes = TheLinear()->row_bytes(a.gate_up, a.activations);
  go.tile_bytes = TheLinear()->row_bytes(a.down, a.activations);
  // The bytes of one token; its dimensions are dimensions of tensors in memory.
  const size_t choice_bytes = go.x_bytes + go.tile_bytes + (a.inner + a.hidden + 32) * sizeof(float);
  return RunPasses(api, context, memory, a.top_k * choice_bytes, TakeRoom, Work, &go);
}

// QMoEKernel is the state of one node.
struct QMoEKernel : ScratchNode<QMoEForm> {
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    QMoECall call(api, context, attributes);
    QMoETensors tensors;
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = ReadQMoE(call, attributes, &tensors)) return s;
    QMoEArgs args;
    args.ids = call.Get<int64_t>(kQMoEIds);
    if (OrtStatus* s = CheckIds(api, kQMoE, args.ids, tensors.shape)) return s;
    if (OrtStatus* s = call.Make(0, &args.y)) return s;
    args.x_type = Input(kQMoEX);
    args.weights_type = Input(kQMoEWeights);
    args.activations = attributes.activations;
    args.x = call.data[kQMoEX];
    args.weights = call.data[kQMoEWeights];
    args.gate_up = ToWeights(attributes.gate_up, tensors.gate_up);
    args.down = ToWeights(attributes.down, tensors.down);
    args.gate_up_bias = call.Get<float>(kQMoEGateUpBias);
    args.down_bias = call.Get<float>(kQMoEDownBias);
    args.Set(tensors.shape, attributes.gate, attributes.packing);
    return RunQMoE(api, context, memory, args);
  }
};

}  // namespace

const Backend kCPUQMoE = MakeBackend<QMoEKernel>(nullptr);

}  // namespace mojo
