// Which tokens go to which expert.
#ifndef MOJO_KERNELS_CPU_MOE_PLAN_H_
#define MOJO_KERNELS_CPU_MOE_PLAN_H_

#include <stddef.h>
#include <stdint.h>

namespace mojo {

// A choice is one expert of one token: number token * top_k + slot. Sorted by expert, choices of one
// expert keep their order and have places 0, 1, ...

// ExpertRun is choices of one expert: the places from first to first + count - 1.
struct ExpertRun {
  size_t expert;
  size_t first;
  size_t count;  // 1 to kMostInRun
};

// More choices than this are several runs, which several threads can work on.
constexpr size_t kMostInRun = 192;

// MostRuns is how many runs so many choices can be cut into.
size_t MostRuns(size_t choices, size_t experts);

// PlanRuns sorts the choices by expert. choice[place] and place[choice] become each other's inverse;
// starts is room for experts + 1 numbers. It returns the number of runs.
size_t PlanRuns(const int64_t* ids, size_t choices, size_t experts, size_t* starts, size_t* choice,
                size_t* place, ExpertRun* runs);

}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_MOE_PLAN_H_
