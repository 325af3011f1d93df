// Sums over the ranks on the CPU.
#pragma once

#include "collective/common/group.h"
#include "cpu/backends.h"

namespace mojo {

// SumOfRanks writes the sums of count numbers of each rank: in float32, in the order of ranks, rounded once. y may be
// one of the rows.
OrtStatus* SumOfRanks(const Api& api, OrtKernelContext* context, ElementType type, const char* const* rows,
                      size_t ranks, void* y, size_t count);

// AllReduce writes the sum of the ranks' x, of count numbers, to y, which may be x. The bits are equal on every rank.
OrtStatus* AllReduce(const Api& api, OrtKernelContext* context, const Member& member, ElementType type, const void* x,
                     void* y, size_t count);

}  // namespace mojo
