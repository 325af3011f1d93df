// The CPU backends of the ops, and what they share.
#ifndef MOJO_KERNELS_CPU_BACKENDS_H_
#define MOJO_KERNELS_CPU_BACKENDS_H_

#include "common/op.h"
#include "cpu/simd/kernels.h"

namespace mojo {

extern const Backend kCPURMSNorm;
extern const Backend kCPUAddRMSNorm;
extern const Backend kCPUGLU;
extern const Backend kCPURotaryEmbedding;

// TheKernels is the table for this machine, chosen at the first call: the best that the environment
// variable MOJO_CPU_ISA allows. Null where the variable's value is unknown.
const KernelTable* TheKernels();

// ToElementType translates the three types that the ops take.
ElementType ToElementType(ONNXTensorElementDataType type);

// OutOfMemory is the status for a failed allocation.
OrtStatus* OutOfMemory(const Api& api);

// Tasks is a piece of work cut into equal parts for the session's threads.
struct Tasks {
  size_t items;
  size_t count;  // number of tasks

  // Cut makes tasks of at least grain elements; an item has width elements.
  static Tasks Cut(size_t items, size_t width, size_t grain);
  size_t Begin(size_t task) const { return items * task / count; }
  size_t End(size_t task) const { return items * (task + 1) / count; }
};

}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_BACKENDS_H_
