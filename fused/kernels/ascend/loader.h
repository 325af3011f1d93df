// Finding the functions of CANN.
#pragma once

#include "ascend/aclnn.h"
#include "common/op.h"

namespace mojo {

// TheCann returns the CANN functions found so far.
Cann& TheCann();

// FindBase finds the functions that every kernel needs. Its error names the missing ones. Without CANN this library
// still loads, but no kernel of CANN's provider can be made.
OrtStatus* FindBase(const KernelInit& init);

// FindPair finds the two phases of an operator.
OrtStatus* FindPair(const KernelInit& init, const char* name, void** plan, void** launch);

// Find finds operators for a kernel that is being made.
inline OrtStatus* Find(const KernelInit&) { return nullptr; }
template <class First, class... Rest>
OrtStatus* Find(const KernelInit& init, First& first, Rest&... rest) {
  if (OrtStatus* s =
          FindPair(init, first.name, reinterpret_cast<void**>(&first.plan), reinterpret_cast<void**>(&first.launch))) {
    return s;
  }
  return Find(init, rest...);
}

}  // namespace mojo
