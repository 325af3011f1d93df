#include "moe/common/moe.h"

namespace mojo {

OrtStatus* CheckIds(const Api& api, const OpDef& def, const int64_t* ids, const MoEShape& shape) {
  const size_t choices = shape.tokens * shape.k;
  for (size_t c = 0; c < choices; ++c) {
    // kNoExpert becomes 0 here, and another negative one a large one.
    if (static_cast<uint64_t>(ids[c]) + 1 <= shape.experts) continue;
    return Errorf(api,
                  "mojo.%s: ids has %lld for token %zu, choice %zu; there are %zu experts (E = %zu), so an id must be "
                  "at least 0 and less than %zu, or -1 for no expert",
                  def.name, static_cast<long long>(ids[c]), c / shape.k, c % shape.k, shape.experts, shape.experts,
                  shape.experts);
  }
  return nullptr;
}

}  // namespace mojo
