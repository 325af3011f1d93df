// MoE on the CPU.
#include "moe/common/moe.h"

#include <algorithm>

#include "cpu/backends.h"
#include "moe/cpu/moe_tasks.h"

namespace mojo {
namespace {

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

void Combine(const Go& go, size_t begin, size_t end) { go.Combine(go.args, begin, end); }

// Work computes the tokens of one go.
OrtStatus* Work(const Api& api, OrtKernelContext* context, Go* go) {
  const MoEArgs& a = go->args;
  const size_t choices = go->tokens * a.top_k;
  if (choices == 0) return RunInTasks(api, context, Combine, *go, go->tokens, a.hidden);
  go->Sort(a, go->lanes, Padded(a.hidden));
  if (OrtStatus* s = RunInTasks(api, context, WidenTokens, *go, go->tokens, a.hidden)) return s;
  if (OrtStatus* s = RunInTasks(api, context, FillPanels, *go, go->runs, choices / go->runs * a.hidden)) return s;
  if (OrtStatus* s = RunExpertTasks(api, context, Activate, go->runs * go->gate_up_blocks, go)) return s;
  if (OrtStatus* s = RunExpertTasks(api, context, Project, go->runs * go->down_blocks, go)) return s;
  return RunInTasks(api, context, Combine, *go, go->tokens, a.top_k * a.hidden);
}

// MoEKernel is the state of one node.
struct MoEKernel : ScratchNode<MoEAttributes> {
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
    return RunMoE(api, context, memory, args);
  }
};

}  // namespace

OrtStatus* RunMoE(const Api& api, OrtKernelContext* context, const HostMemory& memory, const MoEArgs& args) {
  const MoEArgs& a = args;
  if (a.tokens == 0 || a.hidden == 0) return nullptr;
  // Panels are for weights by rows.
  const KernelTable& kernels = *TheKernels();
  const size_t lanes = a.gate_up.by_rows && a.down.by_rows ? kernels.lanes : 0;
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
  go.lanes = lanes;
  go.gate_up_block = a.gate_up.by_rows ? kRowBlock / 2 : kColumnBlock / 2;
  go.gate_up_blocks = Blocks(a.inner, go.gate_up_block);
  go.down_block = a.down.by_rows ? kRowBlock : kColumnBlock;
  go.down_blocks = Blocks(a.hidden, go.down_block);
  const size_t most = MostTokens(a, token_bytes);
  HostScratch scratch;
  const auto plan = [&](HostRoom* room) { TakeRoom(most, &go, room); };
  if (OrtStatus* s = scratch.Divide(api, context, memory, plan)) return s;
  for (; go.first_token < a.tokens; go.first_token += go.tokens) {
    go.tokens = std::min(most, a.tokens - go.first_token);
    if (OrtStatus* s = Work(api, context, &go)) return s;
  }
  return nullptr;
}

const Backend kCPUMoE = MakeBackend<MoEKernel>(nullptr);

}  // namespace mojo
