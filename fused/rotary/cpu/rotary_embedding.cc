// RotaryEmbedding on the CPU.
#include <memory>

#include "cpu/backends.h"
#include "rotary/common/rotary_embedding.h"
#include "rotary/cpu/rotary_rows.h"

namespace mojo {
namespace {

// RotaryKernel is the state of one node.
struct RotaryKernel {
  RotaryEmbeddingAttributes attributes{};
  RotaryFn run = nullptr;
  size_t element_size = 0;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* RotaryKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  const ElementType type = ToElementType(init.types.inputs[0]);
  const auto layout = [](bool interleaved) { return interleaved ? kInterleaved : kHalves; };
  run = TheKernels()->rotary(type, layout(attributes.interleaved), layout(attributes.output_interleaved));
  element_size = ElementSize(type);
  return nullptr;
}

// Work is the shared state of one run's tasks.
struct Work {
  RotaryFn run;
  RotaryTensors tensors;
};

// RotateRange does the rows from row to end - 1.
void RotateRange(const Work& work, size_t row, size_t end) {
  work.tensors.EachRun(row, end, [&](const RotaryArgs& args) { work.run(args); });
}

OrtStatus* RotaryKernel::Compute(const Api& api, OrtKernelContext* context) const {
  Work work{run, {}};
  RotaryTensors& t = work.tensors;
  RotaryEmbeddingCall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  t.x = call.data[kRotaryEmbeddingX];
  t.cos = call.data[kRotaryEmbeddingCos];
  t.sin = call.data[kRotaryEmbeddingSin];
  t.layout = LayOutRotary(attributes, call.shapes[kRotaryEmbeddingX], call.shapes[kRotaryEmbeddingCos],
                          call.shapes[kRotaryEmbeddingSin]);
  if (OrtStatus* s = call.Make(0, &t.y)) return s;
  if (t.layout.Rows() == 0) return nullptr;
  t.x_size = t.y_size = element_size;
  std::unique_ptr<char[]> copy;
  if (attributes.interleaved != attributes.output_interleaved && t.layout.rotated > kRotaryInPlace &&
      !t.MoveOutOfPlace(&copy)) {
    return OutOfMemory(api);
  }
  return RunInTasks(api, context, RotateRange, work, t.layout.Rows(), t.layout.width);
}

}  // namespace

const Backend kCPURotaryEmbedding = MakeBackend<RotaryKernel>(nullptr, MayInPlace<0, 0>);

}  // namespace mojo
