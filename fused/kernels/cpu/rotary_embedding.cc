// RotaryEmbedding on the CPU.
#include <string.h>

#include <memory>
#include <new>

#include "common/ops.h"
#include "cpu/backends.h"

namespace mojo {
namespace {

// RotaryKernel is the state of one node. Immutable after Create.
struct RotaryKernel {
  RotaryEmbeddingAttributes attributes;
  RotaryFn run;
  size_t element_size;
};

void Destroy(void* state) { delete static_cast<RotaryKernel*>(state); }

OrtStatus* Create(const KernelInit& init, void** state) {
  RotaryEmbeddingAttributes attributes{};
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  const ElementType type = ToElementType(init.types.inputs[0]);
  const auto layout = [](bool interleaved) { return interleaved ? kInterleaved : kHalves; };
  const RotaryFn run = TheKernels()->rotary(type, layout(attributes.interleaved),
                                            layout(attributes.output_interleaved));
  auto* kernel = new (std::nothrow)
      RotaryKernel{attributes, run, type == kFloat32 ? size_t{4} : size_t{2}};
  if (kernel == nullptr) return OutOfMemory(init.api);
  *state = kernel;
  return nullptr;
}

// Work is what the tasks of one run share.
struct Work {
  RotaryFn run;
  size_t element_size;
  RotaryLayout layout;
  const char* x;
  const char* cos;
  const char* sin;
  char* y;
};

// RotateRange walks the rows from row to end - 1 in runs along the innermost leading dim, where cos and
// sin move by a fixed step.
void RotateRange(const Work& work, size_t row, size_t end) {
  const RotaryLayout& layout = work.layout;
  const size_t size = work.element_size;
  const size_t inner = layout.rank - 1;
  RotaryArgs args;
  args.width = layout.width;
  args.first = layout.first;
  args.half = layout.rotated / 2;
  args.cos_step = layout.cos_step[inner];
  args.sin_step = layout.sin_step[inner];
  args.cos_wide = layout.cos_wide;
  args.sin_wide = layout.sin_wide;
  while (row < end) {
    // The place of this row: its index along each dim, from the innermost outwards.
    size_t rest = row;
    size_t cos = 0, sin = 0, first = 0;
    for (size_t i = layout.rank; i-- > 0;) {
      const size_t index = rest % layout.dims[i];
      rest /= layout.dims[i];
      cos += index * layout.cos_step[i];
      sin += index * layout.sin_step[i];
      if (i == inner) first = index;
    }
    args.count = layout.dims[inner] - first;
    if (args.count > end - row) args.count = end - row;
    args.x = work.x + row * layout.width * size;
    args.y = work.y + row * layout.width * size;
    args.cos = work.cos + cos * size;
    args.sin = work.sin + sin * size;
    work.run(args);
    row += args.count;
  }
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& kernel = *static_cast<const RotaryKernel*>(state);
  Work work;
  Shape x, cos, sin;
  const void *x_data, *cos_data, *sin_data;
  void* y_data;
  if (OrtStatus* s = ReadInput(api, context, kRotaryEmbedding, 0, &x_data, &x)) return s;
  if (OrtStatus* s = ReadInput(api, context, kRotaryEmbedding, 1, &cos_data, &cos)) return s;
  if (OrtStatus* s = ReadInput(api, context, kRotaryEmbedding, 2, &sin_data, &sin)) return s;
  if (OrtStatus* s = LayOutRotary(api, kernel.attributes, x, cos, sin, &work.layout)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kRotaryEmbedding, 0, x, &y_data)) return s;
  if (work.layout.rows == 0) return nullptr;
  work.run = kernel.run;
  work.element_size = kernel.element_size;
  work.x = static_cast<const char*>(x_data);
  work.cos = static_cast<const char*>(cos_data);
  work.sin = static_cast<const char*>(sin_data);
  work.y = static_cast<char*>(y_data);
  std::unique_ptr<char[]> copy;
  if (x_data == y_data && kernel.attributes.interleaved != kernel.attributes.output_interleaved &&
      work.layout.rotated > kRotaryInPlace) {
    const size_t bytes = work.layout.rows * work.layout.width * kernel.element_size;
    copy.reset(new (std::nothrow) char[bytes]);
    if (copy == nullptr) return OutOfMemory(api);
    memcpy(copy.get(), x_data, bytes);
    work.x = copy.get();
  }
  return RunInTasks(api, context, RotateRange, work, work.layout.rows, work.layout.width);
}

}  // namespace

const Backend kCPURotaryEmbedding = {nullptr, Create, Compute, Destroy, MayInPlace<0, 0>};

}  // namespace mojo
