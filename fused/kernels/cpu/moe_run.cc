#include "cpu/moe_run.h"

#include <algorithm>

#include "cpu/backends.h"
#include "cpu/moe_plan.h"
#include "cpu/moe_tasks.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// Multiplications that are worth waking another thread for.
constexpr size_t kFewMultiplications = size_t{1} << 18;

// Blocks is how many blocks cover so many outputs.
size_t Blocks(size_t outputs, size_t block) { return (outputs + block - 1) / block; }

// Plan is where everything lies in the scratch memory.
struct Plan {
  float *x, *weights, *x_panels, *activated, *activated_panels, *outputs;
  const float** rows;
  size_t *starts, *choice, *place;
  ExpertRun* runs;

  Plan(const MoEArgs& a, size_t tokens, size_t lanes, HostRoom* room) {
    const size_t choices = tokens * a.top_k;
    const size_t in_panels = MostPanels(choices, lanes) * lanes;
    const size_t inner = choices > 0 ? Padded(a.inner) : 0, experts = choices > 0 ? a.experts : 0;
    x = room->Take<float>(tokens * Padded(a.hidden));
    weights = room->Take<float>(choices);
    activated = room->Take<float>(choices * inner);
    activated_panels = room->Take<float>(in_panels * inner);
    // Panels of x are not read any more when outputs are written.
    outputs = x_panels = room->Take<float>(std::max(in_panels, choices) * Padded(a.hidden));
    rows = room->Take<const float*>(choices);
    starts = room->Take<size_t>(experts + 1);
    choice = room->Take<size_t>(choices);
    place = room->Take<size_t>(choices);
    runs = room->Take<ExpertRun>(MostRuns(choices, experts));
  }
};

// Work computes the tokens of one go.
OrtStatus* Work(const Api& api, OrtKernelContext* context, Go* go, const Plan& plan) {
  const MoEArgs& a = go->args;
  const size_t choices = go->tokens * a.top_k, first = go->first_token;
  if (choices == 0) return RunInTasks(api, context, Combine, *go, go->tokens, a.hidden);
  go->runs =
      PlanRuns(a.ids + first * a.top_k, choices, a.experts, go->lanes, plan.starts, plan.choice, plan.place, plan.runs);
  if (OrtStatus* s = RunInTasks(api, context, WidenTokens, *go, go->tokens, a.hidden)) return s;
  if (OrtStatus* s = RunInTasks(api, context, FillPanels, *go, go->runs, choices / go->runs * a.hidden)) return s;
  TheKernels()->to_float32(a.weights_type, At(a.weights, first * a.top_k, a.weights_type), plan.weights, choices);
  for (size_t c = 0; c < choices; ++c) plan.rows[c] = plan.outputs + plan.place[c] * Padded(a.hidden);
  const auto run = [&](void (*task)(void*, size_t), size_t tasks) -> OrtStatus* {
    if (choices * a.hidden * a.inner >= kFewMultiplications) return ParallelFor(api, context, task, tasks, go);
    for (size_t i = 0; i < tasks; ++i) task(go, i);
    return nullptr;
  };
  if (OrtStatus* s = run(Activate, go->runs * go->gate_up_blocks)) return s;
  if (OrtStatus* s = run(Project, go->runs * go->down_blocks)) return s;
  return RunInTasks(api, context, Combine, *go, go->tokens, a.top_k * a.hidden);
}

}  // namespace

OrtStatus* RunMoE(const Api& api, OrtKernelContext* context, const HostMemory& memory, const MoEArgs& args) {
  const MoEArgs& a = args;
  if (a.tokens == 0 || a.hidden == 0) return nullptr;
  // Panels are for weights by rows.
  const KernelTable& kernels = *TheKernels();
  const size_t lanes = a.gate_up.by_rows && a.down.by_rows ? kernels.lanes : 0;
  // What one token takes. Where there is a choice, hidden and top_k are dimensions of tensors that are in
  // memory; inner and experts need not be, if the other one is 0.
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
  const size_t most = std::max<size_t>(1, std::min(a.tokens, a.scratch_bytes / token_bytes));
  const size_t block = a.gate_up.by_rows ? kRowBlock / 2 : kColumnBlock / 2;
  const size_t down_block = a.down.by_rows ? kRowBlock : kColumnBlock;
  HostRoom count;
  Plan(a, most, lanes, &count);
  HostScratch scratch;
  if (OrtStatus* s = scratch.Take(api, context, memory, count.used)) return s;
  HostRoom room{scratch.memory()};
  const Plan plan(a, most, lanes, &room);
  Go go{a,
        kernels.product(a.expert_type),
        kernels.panels(a.expert_type),
        kernels.gate(kFloat32, a.activation),
        kernels.weighted_sum(a.x_type),
        lanes,
        0,
        0,
        0,
        plan.runs,
        plan.choice,
        plan.x,
        plan.weights,
        plan.x_panels,
        plan.activated,
        plan.activated_panels,
        plan.outputs,
        plan.rows,
        Blocks(a.inner, block),
        block,
        Blocks(a.hidden, down_block),
        down_block};
  for (; go.first_token < a.tokens; go.first_token += go.tokens) {
    go.tokens = std::min(most, a.tokens - go.first_token);
    if (OrtStatus* s = Work(api, context, &go, plan)) return s;
  }
  return nullptr;
}

}  // namespace mojo
