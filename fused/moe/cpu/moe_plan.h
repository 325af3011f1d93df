// The assignment of tokens to experts.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "moe/common/ids.h"

namespace mojo {

// A choice is one expert of one token: number token * top_k + slot. Sorted by expert, choices of one expert keep their
// order and have places 0, 1, ... A choice whose id is kNoExpert has no place.

// ExpertRun is choices of one expert: the places from first to first + count - 1. Choices in panels, perhaps with empty
// lanes at the end, come first; the others are too few for a panel.
struct ExpertRun {
  size_t expert;
  size_t first;
  size_t count;   // 1 to kMostInRun
  size_t panels;  // numbered panel, panel + 1, ...
  size_t panel;
  size_t rest;  // choices in no panel
};

// More choices than this make several runs, for several threads.
constexpr size_t kMostInRun = 192;

// MostRuns is how many runs so many choices can be cut into.
size_t MostRuns(size_t choices, size_t experts);

// FullPanels is the number of panels for count tokens. A panel takes as long as three quarters of its tokens one by
// one, whether its lanes are full or not.
size_t FullPanels(size_t count, size_t lanes);

// MostPanels is how many panels so many choices can have.
size_t MostPanels(size_t choices, size_t lanes);

// PlanRuns sorts the choices by expert. choice[place] and place[choice] become each other's inverse; starts is room for
// experts + 1 numbers, the last of which becomes the number of places. Panels have so many lanes; 0 lanes means no
// panels. It returns the number of runs.
size_t PlanRuns(const int64_t* ids, size_t choices, size_t experts, size_t lanes, size_t* starts, size_t* choice,
                size_t* place, ExpertRun* runs);

}  // namespace mojo
