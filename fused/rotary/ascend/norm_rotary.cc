// NormRotary: the norm into scratch memory, then its rotation.
#include "ascend/backends.h"
#include "rotary/common/rotary_embedding.h"

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
  void* y_data;
  NormRotaryCall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  const RotaryLayout layout =
      LayOutRotary(rotary, call.shapes[kNormRotaryX], call.shapes[kNormRotaryCos], call.shapes[kNormRotarySin]);
  if (OrtStatus* s = CheckLayout(api, kNormRotary, layout)) return s;
  if (OrtStatus* s = call.Make(0, &y_data)) return s;
  if (layout.Rows() == 0) return nullptr;
  const Dims dims{static_cast<int64_t>(layout.Rows()), static_cast<int64_t>(layout.width)};
  Run run(context, kNormRotary, memory);
  const View normed = run.Memory(output(0), dims);
  NormAs(&run, View(call.data[kNormRotaryX], input(kNormRotaryX), dims),
         View(call.data[kNormRotaryScale], input(kNormRotaryScale), {dims.at[1]}), attributes.epsilon, normed);
  Rotate(&run, layout, rotary, normed.type, normed.data, call.data[kNormRotaryCos], call.data[kNormRotarySin], y_data);
  return run.Finish();
}

}  // namespace

const Backend kCANNNormRotary = MakeBackend<NormRotaryKernel>(kCANNProvider);

}  // namespace mojo
