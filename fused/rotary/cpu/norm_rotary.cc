// NormRotary on the CPU.
#include <memory>

#include "cpu/backends.h"
#include "rmsnorm/cpu/prepared_scale.h"
#include "rotary/common/rotary_embedding.h"
#include "rotary/cpu/rotary_rows.h"

namespace mojo {
namespace {

// NormRotaryKernel is the state of one node.
struct NormRotaryKernel {
  NormRotaryAttributes attributes{};
  NormRotaryFn run = nullptr;
  ElementType x_type = kFloat32, y_type = kFloat32;
  PreparedScale prepared;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* NormRotaryKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  x_type = ToElementType(init.types.inputs[kNormRotaryX]);
  y_type = ToElementType(init.types.outputs[0]);
  const auto layout = [](bool interleaved) { return interleaved ? kInterleaved : kHalves; };
  run = TheKernels()->norm_rotary({x_type, y_type, attributes.scale_after_cast, layout(attributes.rotary.interleaved),
                                   layout(attributes.rotary.output_interleaved)});
  if (run == nullptr) {
    return Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
  }
  return prepared.Prepare(init, kNormRotaryScale);
}

// Work is the shared state of one run's tasks.
struct Work {
  NormRotaryFn run;
  const float* scale;
  float epsilon;
  RotaryTensors tensors;
};

// NormRotateRange does the rows from row to end - 1.
void NormRotateRange(const Work& work, size_t row, size_t end) {
  work.tensors.EachRun(row, end, [&](const RotaryArgs& args) { work.run({args, work.scale, work.epsilon}); });
}

OrtStatus* NormRotaryKernel::Compute(const Api& api, OrtKernelContext* context) const {
  const RotaryEmbeddingAttributes& rotary = attributes.rotary;
  Work work{run, nullptr, attributes.epsilon, {}};
  RotaryTensors& t = work.tensors;
  ScaleRoom room;
  NormRotaryCall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = prepared.AsFloats(api, call.data[kNormRotaryScale], call.sizes.D, &room, &work.scale)) return s;
  t.x = call.data[kNormRotaryX];
  t.cos = call.data[kNormRotaryCos];
  t.sin = call.data[kNormRotarySin];
  t.layout = LayOutRotary(rotary, call.shapes[kNormRotaryX], call.shapes[kNormRotaryCos], call.shapes[kNormRotarySin]);
  if (OrtStatus* s = call.Make(0, &t.y)) return s;
  const size_t width = t.layout.width;
  if (t.layout.Rows() == 0) return nullptr;
  t.x_size = ElementSize(x_type);
  t.y_size = ElementSize(y_type);
  std::unique_ptr<char[]> copy;
  if (rotary.interleaved != rotary.output_interleaved && width > kRotaryInPlace && !t.MoveOutOfPlace(&copy)) {
    return OutOfMemory(api);
  }
  return RunInTasks(api, context, NormRotateRange, work, t.layout.Rows(), width);
}

}  // namespace

const Backend kCPUNormRotary = MakeBackend<NormRotaryKernel>(nullptr, MayInPlace<0, 0>);

}  // namespace mojo
