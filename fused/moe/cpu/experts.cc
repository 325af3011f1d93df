#include "moe/cpu/experts.h"

#include <algorithm>

#include "cpu/backends.h"

namespace mojo {

void ExpertArgs::Set(const MoEShape& shape, const GLUAttributes& gate, Packing packing) {
  tokens = shape.tokens;
  top_k = shape.k;
  experts = shape.experts;
  hidden = shape.hidden;
  inner = shape.inner;
  gated = packing != Packing::kNone;
  interleaved = packing == Packing::kInterleaved;
  activation = gate.activation;
  alpha = gate.alpha;
  limit = gate.limit;
  up_offset = gate.up_offset;
}

ExpertPass::ExpertPass(const ExpertArgs& args)
    : gate(TheKernels()->gate(kFloat32, args.activation)), weighted_sum(TheKernels()->weighted_sum(args.x_type)) {}

void ExpertPass::TakeRoom(const ExpertArgs& args, size_t choices, HostRoom* room) {
  const size_t experts = choices > 0 ? args.experts : 0;
  weights = room->Take<float>(choices);
  rows = room->Take<const float*>(choices);
  starts = room->Take<size_t>(experts + 1);
  choice = room->Take<size_t>(choices);
  place = room->Take<size_t>(choices);
  run = room->Take<ExpertRun>(MostRuns(choices, experts));
}

void ExpertPass::Sort(const ExpertArgs& args, size_t lanes, size_t row_step) {
  const size_t choices = tokens * args.top_k, first = first_token * args.top_k;
  runs = PlanRuns(args.ids + first, choices, args.experts, lanes, starts, choice, place, run);
  TheKernels()->to_float32(args.weights_type, At(args.weights, first, args.weights_type), weights, choices);
  places = starts[args.experts];
  for (size_t t = 0; t < tokens; ++t) {
    size_t to = t * args.top_k;
    for (size_t c = to; c < (t + 1) * args.top_k; ++c) {
      if (args.ids[first + c] == kNoExpert) continue;
      weights[to] = weights[c];
      rows[to++] = outputs + place[c] * row_step;
    }
  }
}

void ExpertPass::Combine(const ExpertArgs& args, size_t begin, size_t end) const {
  const size_t row = args.hidden * SizeOf(args.x_type);
  for (size_t t = begin; t < end; ++t) {
    const int64_t* const ids = args.ids + (first_token + t) * args.top_k;
    const size_t count = args.top_k - static_cast<size_t>(std::count(ids, ids + args.top_k, kNoExpert));
    weighted_sum({rows + t * args.top_k, weights + t * args.top_k, count, args.hidden,
                  static_cast<char*>(args.y) + (first_token + t) * row});
  }
}

}  // namespace mojo
