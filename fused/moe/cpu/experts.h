// The code that MoE and QMoE share on the CPU. They differ in how they read weights: each has its own products.
//
// Choices are sorted by expert, so that each expert's weights are read once for all its tokens (a grouped GEMM, as in
// Gale et al., "MegaBlocks", 2022). The outputs of a token's choices are summed in the order of its ids, so results do
// not depend on the division of the work.
#pragma once

#include <algorithm>

#include "cpu/backends.h"
#include "cpu/scratch.h"
#include "moe/common/moe.h"
#include "moe/cpu/moe_plan.h"

namespace mojo {

// ExpertArgs are the arguments of a call, except the weights of the experts. Buffers are dense.
struct ExpertArgs {
  ElementType x_type = kFloat32;  // of x and y
  ElementType weights_type = kFloat32;
  const void* x = nullptr;        // [tokens, hidden]
  const void* weights = nullptr;  // [tokens, top_k]
  const int64_t* ids = nullptr;   // [tokens, top_k], each an expert or kNoExpert
  void* y = nullptr;              // [tokens, hidden]
  size_t tokens = 0;
  size_t top_k = 0;
  size_t experts = 0;
  size_t hidden = 0;
  size_t inner = 0;
  bool gated = false;        // has gate and up; otherwise one product, activated as a whole
  bool interleaved = false;  // gate and up alternate
  Activation activation = Activation::kSilu;
  float alpha = 1;
  float limit = 0;
  float up_offset = 0;
  // The approximate limit of a run's scratch memory: enough for 1900 tokens with 8 experts each, H 2048 and I 768. More
  // tokens take another pass, which reads the weights again.
  size_t scratch_bytes = size_t{256} << 20;

  // Set writes the sizes of a call and the gate between its two products.
  void Set(const MoEShape& shape, const GLUAttributes& gate, Packing packing);
};

// Multiplications that are worth waking another thread for.
constexpr size_t kFewMultiplications = size_t{1} << 18;

// ExpertPass is the shared state of the tasks for some tokens. A place is the number of a choice in the order of the
// experts.
struct ExpertPass {
  GateFn gate = nullptr;
  WeightedSumFn weighted_sum = nullptr;
  size_t first_token = 0, tokens = 0;
  size_t runs = 0, places = 0;
  ExpertRun* run = nullptr;
  size_t *starts = nullptr, *choice = nullptr, *place = nullptr;  // choice per place, and the inverse
  float* activated = nullptr;                                     // [place, inner]
  float* outputs = nullptr;                                       // [place, hidden]
  // For each token, first those of its choices that have a place: their weights, and their rows of outputs.
  float* weights = nullptr;
  const float** rows = nullptr;

  explicit ExpertPass(const ExpertArgs& args);

  // TakeRoom takes scratch memory for the order of so many choices.
  void TakeRoom(const ExpertArgs& args, size_t choices, HostRoom* room);

  // Sort sorts the choices of the pass, some or all into panels of so many lanes (0: no panels), and widens their
  // weights. The rows of outputs are row_step apart.
  void Sort(const ExpertArgs& args, size_t lanes, size_t row_step);

  // Combine writes y of the tokens from begin to end - 1: the sums of their choices' outputs times their weights, 0
  // without a choice that has a place.
  void Combine(const ExpertArgs& args, size_t begin, size_t end) const;
};

// RunPasses computes y, in passes of as many tokens of token_bytes each as scratch memory may take, at least 1.
// take_room divides the memory of so many tokens; work makes the outputs of a pass with choices, which
// may have no places.
template <class Pass>
OrtStatus* RunPasses(const Api& api, OrtKernelContext* context, const HostMemory& memory, size_t token_bytes,
                     void (*take_room)(size_t tokens, Pass* pass, HostRoom* room),
                     OrtStatus* (*work)(const Api& api, OrtKernelContext* context, Pass* pass), Pass* pass) {
  const ExpertArgs& a = pass->args;
  const size_t fit = a.scratch_bytes / std::max<size_t>(1, token_bytes);
  const size_t most = std::max<size_t>(1, std::min(a.tokens, fit));
  const auto plan = [&](HostRoom* room) { take_room(most, pass, room); };
  const auto combine = [&](size_t begin, size_t end) { pass->Combine(a, begin, end); };
  HostScratch scratch;
  if (OrtStatus* s = scratch.Divide(api, context, memory, plan)) return s;
  for (; pass->first_token < a.tokens; pass->first_token += pass->tokens) {
    pass->tokens = std::min(most, a.tokens - pass->first_token);
    if (a.top_k > 0) {
      if (OrtStatus* s = work(api, context, pass)) return s;
    }
    const size_t width = std::max<size_t>(1, a.top_k) * a.hidden;
    if (OrtStatus* s = RunInTasks(api, context, combine, pass->tokens, width)) return s;
  }
  return nullptr;
}

// RunExpertTasks calls task(pass, 0..tasks - 1), on the session's threads if the pass has enough to multiply.
template <class Pass>
OrtStatus* RunExpertTasks(const Api& api, OrtKernelContext* context, void (*task)(void*, size_t), size_t tasks,
                          Pass* pass) {
  const ExpertArgs& a = pass->args;
  if (pass->places * a.hidden * a.inner >= kFewMultiplications) {
    return ParallelFor(api, context, task, tasks, pass);
  }
  for (size_t i = 0; i < tasks; ++i) task(pass, i);
  return nullptr;
}

}  // namespace mojo
