// RotaryEmbedding by aclnnRotaryPositionEmbedding, which, unlike aclnnApplyRotaryPosEmb, does not write in place and
// takes heads of any even size.
//
// The call needs all channels of X, tables as wide as X, the same pair layout in X and Y (halves or interleaved), and 4
// dimensions, of which the tables may broadcast only in few combinations. Copies on the device cover the other cases:
// they reorder the rotated channels for Y, widen half-width tables, and expand tables that broadcast in another way.
#include "rotary/common/rotary_embedding.h"
#include "ascend/backends.h"

namespace mojo {
namespace {

struct RotaryKernel : Node<RotaryEmbeddingAttributes> {
  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* RotaryKernel::Init(const KernelInit& init) {
  if (OrtStatus* s = InitNode(init)) return s;
  if (OrtStatus* s = CheckRotary(init, attributes)) return s;
  return FindRotary(init);
}

OrtStatus* RotaryKernel::Compute(const Api& api, OrtKernelContext* context) const {
  void* y_data;
  RotaryEmbeddingCall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  const RotaryLayout layout = LayOutRotary(attributes, call.shapes[kRotaryEmbeddingX], call.shapes[kRotaryEmbeddingCos],
                                           call.shapes[kRotaryEmbeddingSin]);
  if (OrtStatus* s = CheckLayout(api, kRotaryEmbedding, layout)) return s;
  if (OrtStatus* s = call.Make(0, &y_data)) return s;
  if (layout.Rows() == 0) return nullptr;
  Run run(context, kRotaryEmbedding, memory);
  Rotate(&run, layout, attributes, input(0), call.data[kRotaryEmbeddingX], call.data[kRotaryEmbeddingCos],
         call.data[kRotaryEmbeddingSin], y_data);
  return run.Finish();
}

}  // namespace

const Backend kCANNRotaryEmbedding = MakeBackend<RotaryKernel>(kCANNProvider);

}  // namespace mojo
