// QMoE on the CPU. Like MoE, it sorts choices by expert. It rounds the tokens of each expert into tiles and multiplies
// them with the expert's panels, read in place.
#include <algorithm>

#include "cpu/backends.h"
#include "qmoe/common/qmoe.h"
#include "qmoe/cpu/qmoe_tasks.h"

namespace mojo {
namespace {

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

void Combine(const QMoEGo& go, size_t begin, size_t end) { go.Combine(go.args, begin, end); }

// Work computes the tokens of one go.
OrtStatus* Work(const Api& api, OrtKernelContext* context, QMoEGo* go) {
  const QMoEArgs& a = go->args;
  const size_t choices = go->tokens * a.top_k;
  if (choices == 0) return RunInTasks(api, context, Combine, *go, go->tokens, a.hidden);
  go->Sort(a, 0, a.hidden);
  go->alone = go->tokens == 1 && go->runs == choices;
  const size_t rows = choices / go->runs;
  const size_t blocks = a.inner / kInnerBlock, groups = (a.hidden / kPanel + kDownPanels - 1) / kDownPanels;
  if (OrtStatus* s = RunInTasks(api, context, GatherTokens, *go, go->runs, rows * a.hidden)) return s;
  if (OrtStatus* s = RunExpertTasks(api, context, ActivateBlock, go->runs * blocks, go)) return s;
  if (a.activations != Activations::kFloat) {
    if (OrtStatus* s = RunInTasks(api, context, RoundActivated, *go, go->runs, rows * a.inner)) return s;
  }
  if (OrtStatus* s = RunExpertTasks(api, context, ProjectPanels, go->runs * groups, go)) return s;
  return RunInTasks(api, context, Combine, *go, go->tokens, a.top_k * a.hidden);
}

OrtStatus* RunQMoE(const Api& api, OrtKernelContext* context, const HostMemory& memory, const QMoEArgs& a) {
  if (a.tokens == 0) return nullptr;
  QMoEGo go(a);
  go.x_bytes = TheLinear()->row_bytes(a.gate_up, a.activations);
  go.tile_bytes = TheLinear()->row_bytes(a.down, a.activations);
  // The bytes of one token; its dimensions are dimensions of tensors in memory.
  const size_t choice_bytes = go.x_bytes + go.tile_bytes + (a.inner + a.hidden + 32) * sizeof(float);
  const size_t most = MostTokens(a, a.top_k * choice_bytes);
  HostScratch scratch;
  const auto plan = [&](HostRoom* room) { TakeRoom(most, &go, room); };
  if (OrtStatus* s = scratch.Divide(api, context, memory, plan)) return s;
  for (; go.first_token < a.tokens; go.first_token += go.tokens) {
    go.tokens = std::min(most, a.tokens - go.first_token);
    if (OrtStatus* s = Work(api, context, &go)) return s;
  }
  return nullptr;
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
