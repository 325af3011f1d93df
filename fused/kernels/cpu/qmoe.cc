// QMoE on the CPU. Choices are sorted by expert, as MoE does it; the tokens of each expert are rounded into tiles, and
// multiplied with its panels where they lie.
#include <algorithm>

#include "common/qmoe.h"
#include "cpu/backends.h"
#include "cpu/qmoe_tasks.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// As much scratch memory as a run takes, about.
constexpr size_t kScratchBytes = size_t{256} << 20;

// Multiplications that are worth waking another thread for.
constexpr size_t kFewMultiplications = size_t{1} << 18;

// QMoEKernel is the state of one node.
struct QMoEKernel {
  QMoEAttributes attributes{};
  ElementType x_type = kFloat32, weights_type = kFloat32;
  HostMemory memory;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* QMoEKernel::Init(const KernelInit& init) {
  x_type = ToElementType(init.types.inputs[kQMoEX]);
  weights_type = ToElementType(init.types.inputs[kQMoEWeights]);
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  return memory.Find(init);
}

// Plan is where everything lies in the scratch memory.
struct Plan {
  char *x, *tiles;
  float *activated, *outputs, *weights;
  const float** rows;
  size_t *starts, *choice, *place;
  ExpertRun* runs;

  Plan(const QMoEArgs& a, size_t tokens, size_t x_bytes, size_t tile_bytes, HostRoom* room) {
    const size_t choices = tokens * a.top_k, experts = choices > 0 ? a.experts : 0;
    x = room->Take<char>(choices * x_bytes);
    activated = room->Take<float>(choices * a.inner);
    const bool as_they_are = a.activations == kFloatActivations;
    tiles = as_they_are ? reinterpret_cast<char*>(activated) : room->Take<char>(choices * tile_bytes);
    outputs = room->Take<float>(choices * a.hidden);
    weights = room->Take<float>(choices);
    rows = room->Take<const float*>(choices);
    starts = room->Take<size_t>(experts + 1);
    choice = room->Take<size_t>(choices);
    place = room->Take<size_t>(choices);
    runs = room->Take<ExpertRun>(MostRuns(choices, experts));
  }
};

// Work computes the tokens of one go.
OrtStatus* Work(const Api& api, OrtKernelContext* context, QMoEGo* go, const Plan& plan) {
  const QMoEArgs& a = go->args;
  const size_t choices = go->tokens * a.top_k, first = go->first_token * a.top_k;
  if (choices == 0) return RunInTasks(api, context, AddOutputs, *go, go->tokens, a.hidden);
  go->runs = PlanRuns(a.ids + first, choices, a.experts, 0, plan.starts, plan.choice, plan.place, plan.runs);
  go->alone = go->tokens == 1 && go->runs == choices;
  const size_t size = a.weights_type == kFloat32 ? 4 : 2;
  TheKernels()->to_float32(a.weights_type, static_cast<const char*>(a.weights) + first * size, plan.weights, choices);
  for (size_t c = 0; c < choices; ++c) plan.rows[c] = plan.outputs + plan.place[c] * a.hidden;
  const size_t rows = choices / go->runs;
  const auto run = [&](void (*task)(void*, size_t), size_t tasks) -> OrtStatus* {
    if (choices * a.hidden * a.inner >= kFewMultiplications) return ParallelFor(api, context, task, tasks, go);
    for (size_t i = 0; i < tasks; ++i) task(go, i);
    return nullptr;
  };
  if (OrtStatus* s = RunInTasks(api, context, GatherTokens, *go, go->runs, rows * a.hidden)) return s;
  if (OrtStatus* s = run(ActivateBlock, go->runs * (a.inner / kInnerBlock))) return s;
  if (a.activations != kFloatActivations) {
    if (OrtStatus* s = RunInTasks(api, context, RoundActivated, *go, go->runs, rows * a.inner)) return s;
  }
  if (OrtStatus* s = run(ProjectPanels, go->runs * ((a.hidden / kPanel + kDownPanels - 1) / kDownPanels))) return s;
  return RunInTasks(api, context, AddOutputs, *go, go->tokens, a.top_k * a.hidden);
}

OrtStatus* RunQMoE(const Api& api, OrtKernelContext* context, const HostMemory& memory, const QMoEArgs& a) {
  if (a.tokens == 0) return nullptr;
  const size_t x_bytes = TheLinear()->row_bytes(a.gate_up, a.activations);
  const size_t tile_bytes = TheLinear()->row_bytes(a.down, a.activations);
  // What one token takes; its dimensions are those of tensors in memory.
  const size_t choice_bytes = x_bytes + tile_bytes + (a.inner + a.hidden + 32) * sizeof(float);
  const size_t token_bytes = std::max<size_t>(1, a.top_k * choice_bytes);
  const size_t most = std::max<size_t>(1, std::min(a.tokens, a.scratch_bytes / token_bytes));
  HostRoom count;
  Plan(a, most, x_bytes, tile_bytes, &count);
  HostScratch scratch;
  if (OrtStatus* s = scratch.Take(api, context, memory, count.used)) return s;
  HostRoom room{scratch.memory()};
  const Plan plan(a, most, x_bytes, tile_bytes, &room);
  QMoEGo go{a,
            TheKernels()->gate(kFloat32, a.activation),
            TheKernels()->weighted_sum(a.x_type),
            0,
            0,
            0,
            plan.runs,
            plan.choice,
            false,
            plan.x,
            x_bytes,
            plan.activated,
            plan.tiles,
            tile_bytes,
            plan.outputs,
            plan.weights,
            plan.rows};
  for (; go.first_token < a.tokens; go.first_token += go.tokens) {
    go.tokens = std::min(most, a.tokens - go.first_token);
    if (OrtStatus* s = Work(api, context, &go, plan)) return s;
  }
  return nullptr;
}

OrtStatus* QMoEKernel::Compute(const Api& api, OrtKernelContext* context) const {
  QMoEInputs in{};
  Shape x;
  MoEShape shape;
  if (OrtStatus* s = ReadQMoE(api, context, attributes, &in, &x, &shape)) return s;
  if (OrtStatus* s = CheckIds(api, kQMoE, in.ids, shape)) return s;
  QMoEArgs args{};
  if (OrtStatus* s = MakeOutput(api, context, kQMoE, 0, x, &args.y)) return s;
  args.x_type = x_type;
  args.weights_type = weights_type;
  args.activations = ToActivationKind(attributes.activations);
  args.x = in.x;
  args.weights = in.weights;
  args.ids = in.ids;
  args.gate_up = ToWeights(attributes.gate_up, in.gate_up);
  args.down = ToWeights(attributes.down, in.down);
  args.gate_up_bias = in.gate_up_bias;
  args.down_bias = in.down_bias;
  args.tokens = shape.tokens;
  args.top_k = shape.k;
  args.experts = shape.experts;
  args.hidden = shape.hidden;
  args.inner = shape.inner;
  args.gated = attributes.packing != Packing::kNone;
  args.interleaved = attributes.packing == Packing::kInterleaved;
  args.activation = ToGateKind(attributes.gate.activation);
  args.alpha = attributes.gate.alpha;
  args.limit = attributes.gate.limit;
  args.up_offset = attributes.gate.up_offset;
  args.scratch_bytes = kScratchBytes;
  return RunQMoE(api, context, memory, args);
}

}  // namespace

const Backend kCPUQMoE = MakeBackend<QMoEKernel>(nullptr);

}  // namespace mojo
