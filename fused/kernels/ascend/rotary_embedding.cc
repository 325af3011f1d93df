// RotaryEmbedding by aclnnRotaryPositionEmbedding, which, unlike aclnnApplyRotaryPosEmb, writes to other memory than it
// reads, and takes heads of any even size.
//
// What the call takes is: all channels of X, tables as wide as X, the pairs of X and Y in one place (as halves or
// beside each other), and 4 dimensions, of which the tables have their own or 1 in few combinations. Copies in the
// device's memory make up for the rest: of channels to be rotated into the order of Y; of tables half as wide; and of
// tables to all rows, where they are broadcast in another way.
#include "common/rotary_embedding.h"
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
  if (layout.rows == 0) return nullptr;
  Run run(context, kRotaryEmbedding, memory);
  Rotate(&run, layout, attributes, input(0), call.data[kRotaryEmbeddingX], call.data[kRotaryEmbeddingCos],
         call.data[kRotaryEmbeddingSin], y_data);
  return run.Finish();
}

}  // namespace

const Backend kCANNRotaryEmbedding = MakeBackend<RotaryKernel>(kCANNProvider);

}  // namespace mojo
