// NormRotary: the norm into memory of its own, then the rotation of that.
#include "common/norm_rotary.h"
#include "ascend/backends.h"

namespace mojo {
namespace {

using NormRotaryNode = Node<NormRotaryAttributes>;

OrtStatus* Create(const KernelInit& init, void** state) {
  return CreateNode<NormRotaryAttributes>(init, state, [&](const NormRotaryAttributes& attributes) {
    OrtStatus* status = CheckRotary(init, attributes.rotary);
    if (status == nullptr) status = FindNorm(init);
    return status == nullptr ? FindRotary(init) : status;
  });
}

OrtStatus* Compute(void* state, OrtKernelContext* context) {
  const Api& api = TheApi();
  const auto& node = *static_cast<const NormRotaryNode*>(state);
  const RotaryEmbeddingAttributes& rotary = node.attributes.rotary;
  const void *x_data, *scale_data, *cos_data, *sin_data;
  void* y_data;
  Shape x, scale, cos, sin;
  RotaryLayout layout;
  if (OrtStatus* s = ReadInput(api, context, kNormRotary, kNormRotaryX, &x_data, &x)) return s;
  if (OrtStatus* s = ReadInput(api, context, kNormRotary, kNormRotaryScale, &scale_data, &scale)) return s;
  if (OrtStatus* s = ReadInput(api, context, kNormRotary, kNormRotaryCos, &cos_data, &cos)) return s;
  if (OrtStatus* s = ReadInput(api, context, kNormRotary, kNormRotarySin, &sin_data, &sin)) return s;
  if (OrtStatus* s = LayOutRotary(api, kNormRotary, rotary, x, cos, sin, &layout)) return s;
  if (OrtStatus* s = CheckLayout(api, kNormRotary, layout)) return s;
  if (OrtStatus* s = CheckScale(api, kNormRotary, x, -1, scale)) return s;
  if (OrtStatus* s = MakeOutput(api, context, kNormRotary, 0, x, &y_data)) return s;
  if (layout.rows == 0) return nullptr;
  const Dims dims{static_cast<int64_t>(layout.rows), static_cast<int64_t>(layout.width)};
  Run run(context, kNormRotary, node.memory);
  const View normed = run.Memory(node.output(0), dims);
  NormAs(&run, View(x_data, node.input(kNormRotaryX), dims),
         View(scale_data, node.input(kNormRotaryScale), {dims.at[1]}), node.attributes.epsilon, normed);
  Rotate(&run, layout, rotary, normed.type, normed.data, cos_data, sin_data, y_data);
  return run.Finish();
}

}  // namespace

const Backend kCANNNormRotary = {kCANNProvider, Create, Compute, DestroyNode<NormRotaryAttributes>, nullptr};

}  // namespace mojo
