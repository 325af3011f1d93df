// NormRotary: the norm into memory of its own, then the rotation of that.
#include "ascend/backends.h"
#include "common/rms_norm.h"
#include "common/rotary_embedding.h"

namespace mojo {
namespace {

struct NormRotaryKernel : Node<NormRotaryAttributes> {
  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* NormRotaryKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = InitNode(init)) return s;
  if (OrtStatus* s = CheckRotary(init, attributes.rotary)) return s;
  if (OrtStatus* s = FindNorm(init)) return s;
  return FindRotary(init);
}

OrtStatus* NormRotaryKernel::Compute(const Api& api, OrtKernelContext* context) const {
  const RotaryEmbeddingAttributes& rotary = attributes.rotary;
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
  Run run(context, kNormRotary, memory);
  const View normed = run.Memory(output(0), dims);
  NormAs(&run, View(x_data, input(kNormRotaryX), dims), View(scale_data, input(kNormRotaryScale), {dims.at[1]}),
         attributes.epsilon, normed);
  Rotate(&run, layout, rotary, normed.type, normed.data, cos_data, sin_data, y_data);
  return run.Finish();
}

}  // namespace

const Backend kCANNNormRotary = MakeBackend<NormRotaryKernel>(kCANNProvider);

}  // namespace mojo
