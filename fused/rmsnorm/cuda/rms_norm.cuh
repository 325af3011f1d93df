// The partition of a norm over threads, for its launches and for timings.
#pragma once

#include "cuda/mojo_cuda.h"

namespace mojo {

// NormPlan is a form of the kernel, the threads of a row, and the rows of a block.
struct NormPlan {
  enum Form {
    kGroups4,  // a row in threads lanes of a warp, up to 4 packs of 16 bytes each
    kBlock2,   // a row in a block, two packs a thread
    kBlock4,
    kBlock8,
    kAny,  // any width and alignment
  };
  Form form;
  int threads;
  int rows;
};

// PlanNorm chooses.
NormPlan PlanNorm(const MojoRMSNormArgs& args, bool add);

// ForceNormPlan makes every norm take plan, until it is called with null: for timings only, from one
// thread, with plans that hold the row.
void ForceNormPlan(const NormPlan* plan);

}  // namespace mojo
