// The CPU backends of the ops, and their common helpers.
#pragma once

#include "common/kernel.h"
#include "common/schema.h"
#include "cpu/simd/kernels.h"

namespace mojo {

#define MOJO_DECLARE(op) extern const Backend kCPU##op;
MOJO_CPU_OPS(MOJO_DECLARE)
#undef MOJO_DECLARE

// RegisterLibrary implements RegisterCustomOps of a library with CPU kernels: it adds the rows of the table to the
// session options as domain "mojo", for the onnxruntime of base. The environment variable MOJO_CPU_ISA (portable, avx2
// or avx512) caps the instruction set. The table must live as long as the process.
OrtStatus* RegisterLibrary(OrtSessionOptions* options, const OrtApiBase* base, const OpEntry* table, size_t count);

// TheKernels is the table for this machine, chosen at the first call: the best that the environment variable
// MOJO_CPU_ISA allows. It is null if the variable's value is unknown.
const KernelTable* TheKernels();

// BFloatProducts chooses the products of a node with weights in bfloat16: null for exact ones, the default and the only
// ones if the processor multiplies no bfloat16. The environment variable MOJO_CPU_PRODUCTS (exact or bfloat16) is read
// when the node is made; another value is an error.
OrtStatus* BFloatProducts(const KernelInit& init, const BFloatFns** fns);

// NoKernel is the error of a node whose types the table has no kernel for.
OrtStatus* NoKernel(const KernelInit& init);

// At is the address of an element of a tensor.
inline const char* At(const void* data, size_t element, ElementType type) {
  return static_cast<const char*>(data) + element * SizeOf(type);
}

// TaskCount is how many tasks to cut items of width elements into: each must be worth waking a thread for. It is at
// least 1 and at most items (for items > 0).
size_t TaskCount(size_t items, size_t width);

// ProductGroups is the number of groups to cut units of weights into, for so many products in all: a task multiplies
// with one group. It is a power of two, unless there are fewer units, since onnxruntime assigns the same number of
// tasks to each thread.
size_t ProductGroups(size_t units, size_t products);

// RunInTasks calls run(begin, end), or run(args, begin, end), for ranges that together cover 0..items-1 once, on the
// session's threads. An item has width elements.
template <class Range>
OrtStatus* RunInTasks(const Api& api, OrtKernelContext* context, const Range& run, size_t items, size_t width) {
  struct Work {
    const Range& run;
    size_t items, count;
  } work{run, items, TaskCount(items, width)};
  const auto task = [](void* state, size_t i) {
    const auto& w = *static_cast<const Work*>(state);
    w.run(w.items * i / w.count, w.items * (i + 1) / w.count);
  };
  return ParallelFor(api, context, task, work.count, &work);
}

template <class Args>
OrtStatus* RunInTasks(const Api& api, OrtKernelContext* context,
                      void (*run)(const Args& args, size_t begin, size_t end), const Args& args, size_t items,
                      size_t width) {
  return RunInTasks(api, context, [&](size_t begin, size_t end) { run(args, begin, end); }, items, width);
}

}  // namespace mojo
