#include "moe/cpu/moe_plan.h"

#include <algorithm>

namespace mojo {
size_t FullPanels(size_t count, size_t lanes) {
  return lanes == 0 ? 0 : count / lanes + (count % lanes > lanes * 3 / 4 ? 1 : 0);
}

size_t MostPanels(size_t choices, size_t lanes) { return lanes == 0 ? 0 : choices / (lanes * 3 / 4); }

size_t MostRuns(size_t choices, size_t experts) {
  return choices / kMostInRun + (choices < experts ? choices : experts);
}

size_t PlanRuns(const int64_t* ids, size_t choices, size_t experts, size_t lanes, size_t* starts, size_t* choice,
                size_t* place, ExpertRun* runs) {
  for (size_t e = 0; e <= experts; ++e) starts[e] = 0;
  for (size_t c = 0; c < choices; ++c) {
    if (ids[c] != kNoExpert) ++starts[static_cast<size_t>(ids[c]) + 1];
  }
  size_t count = 0, panel = 0;
  for (size_t e = 0; e < experts; ++e) {
    size_t left = starts[e + 1];
    starts[e + 1] += starts[e];
    for (size_t first = starts[e]; left > 0;) {
      // Runs of one expert have about one size.
      const size_t parts = (left + kMostInRun - 1) / kMostInRun;
      const size_t part = (left + parts - 1) / parts;
      const size_t panels = FullPanels(part, lanes);
      runs[count++] = {e, first, part, panels, panel, part - std::min(part, panels * lanes)};
      panel += panels;
      first += part;
      left -= part;
    }
  }
  for (size_t c = 0; c < choices; ++c) {
    if (ids[c] == kNoExpert) continue;
    const size_t p = starts[static_cast<size_t>(ids[c])]++;
    place[c] = p;
    choice[p] = c;
  }
  return count;
}

}  // namespace mojo
