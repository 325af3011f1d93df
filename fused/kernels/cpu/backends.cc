#include "cpu/backends.h"

#include <stdlib.h>

#include "cpu/isa.h"

namespace mojo {
namespace {

// More tasks than this only add to the cost of handing them out.
constexpr size_t kMaxTasks = 256;

}  // namespace

const KernelTable* TheKernels() {
  static const KernelTable* const kernels = BestKernels(getenv("MOJO_CPU_ISA"));
  return kernels;
}

ElementType ToElementType(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
      return kFloat16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
      return kBFloat16;
    default:
      return kFloat32;
  }
}

OrtStatus* OutOfMemory(const Api& api) {
  return api.ort->CreateStatus(ORT_FAIL, "mojo: out of memory");
}

Tasks Tasks::Cut(size_t items, size_t width, size_t grain) {
  size_t count = items * width / grain;
  if (count > items) count = items;
  if (count > kMaxTasks) count = kMaxTasks;
  if (count < 2) count = 1;
  return {items, count};
}

}  // namespace mojo
