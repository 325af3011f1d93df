// Finding the functions of CANN.
#ifndef MOJO_KERNELS_ASCEND_LOADER_H_
#define MOJO_KERNELS_ASCEND_LOADER_H_

#include "ascend/aclnn.h"
#include "common/op.h"

namespace mojo {

// TheCann is CANN's functions, as far as they were found.
Cann& TheCann();

// FindBase finds the functions that every kernel needs. An error names what is missing: on a machine without CANN
// this library loads, and only the kernels of CANN's provider are not made.
OrtStatus* FindBase(const KernelInit& init);

// FindPair finds the two phases of an operator.
OrtStatus* FindPair(const KernelInit& init, const char* name, void** plan, void** launch);

// Find finds operators, for a kernel that is made.
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

#endif  // MOJO_KERNELS_ASCEND_LOADER_H_
