#include "ascend/contract.h"

#include <stdio.h>

#include <initializer_list>

namespace mojo {

OrtStatus* CheckAttention(const KernelInit& init, const AttentionAttributes& attributes) {
  if (attributes.softcap > 0) {
    return BadAttribute(init, "softcap", attributes.softcap, "0: aclnnFlashAttentionScore bounds no scores");
  }
  if (attributes.cyclic) {
    return Errorf(
        init.api,
        "mojo.Attention: head_order is cyclic; with aclnnFlashAttentionScore, heads that share keys stand in a "
        "row");
  }
  return nullptr;
}

OrtStatus* CheckAttentionTensors(const Api& api, const AttentionTensors& t) {
  const char* input = t.bias != nullptr           ? "bias"
                      : t.sink != nullptr         ? "sink"
                      : t.past_lengths != nullptr ? "past_length"
                                                  : nullptr;
  if (input != nullptr) {
    return Errorf(api, "mojo.Attention: %s is given, which aclnnFlashAttentionScore has nothing for", input);
  }
  if (t.heads > kMostHeads || t.width > kMostChannels || t.value_width != t.width) {
    return Errorf(
        api,
        "mojo.Attention: q has %zu heads of %zu channels, v of %zu; aclnnFlashAttentionScore takes at most %zu "
        "heads, of one width up to %zu",
        t.heads, t.width, t.value_width, kMostHeads, kMostChannels);
  }
  return nullptr;
}

OrtStatus* CheckRotary(const KernelInit& init, const RotaryEmbeddingAttributes& attributes) {
  if (attributes.rotary_dim < kRotatedEnd) return nullptr;
  char expected[96];
  snprintf(expected, sizeof(expected), "less than %d, which is what aclnnRotaryPositionEmbedding takes",
           static_cast<int>(kRotatedEnd));
  return BadAttribute(init, "rotary_dim", attributes.rotary_dim, expected);
}

bool FitsHalves(int64_t b, int64_t n, int64_t s, int64_t d, size_t type_size) {
  if (b >= kHeadsEnd || n >= kHeadsEnd) return false;
  if ((d / 2) % static_cast<int64_t>(32 / type_size) == 0) return b * n <= 8 * s;
  // The other documented condition depends on the number of cores.
  return d >= 80;
}

bool GatesTopK(const TopKRouterAttributes& attributes, bool biased) {
  return attributes.score == Score::kSoftmax && !attributes.top_k_first && attributes.groups == 1 && !biased &&
         attributes.top_k <= kMostChosen;
}

OrtStatus* CheckMoETypes(const KernelInit& init) {
  if (init.types.inputs[kMoEX] == init.types.inputs[kMoEGateUp]) return nullptr;
  return Errorf(init.api,
                "mojo.MoE: X and gate_up have different types; aclnnGroupedMatmulV4 multiplies matrices of one type");
}

OrtStatus* CheckMoEShape(const Api& api, const MoEShape& shape) {
  const auto experts = static_cast<int64_t>(shape.experts);
  if (experts > kMostExperts) {
    return Errorf(api, "mojo.MoE: gate_up has %lld experts; aclnnGroupedMatmulV4 takes at most %lld groups",
                  static_cast<long long>(experts), static_cast<long long>(kMostExperts));
  }
  if (shape.k > shape.experts) {
    return Errorf(api,
                  "mojo.MoE: ids choose %zu of %zu experts; aclnnMoeFinalizeRoutingV2 takes no more than there are",
                  shape.k, shape.experts);
  }
  if (shape.experts == 0 || shape.k == 0 || shape.inner == 0) {
    return Errorf(api, "mojo.MoE: %zu experts of width %zu, %zu for each token: CANN's calls take none that is 0",
                  shape.experts, shape.inner, shape.k);
  }
  for (size_t width : {shape.hidden, shape.packed, shape.inner}) {
    if (static_cast<int64_t>(width) < kWidthEnd) continue;
    return Errorf(
        api, "mojo.MoE: a matrix of the experts has %zu rows or columns; aclnnGroupedMatmulV4 takes less than %lld",
        width, static_cast<long long>(kWidthEnd));
  }
  return nullptr;
}

aclDataType CombineType(aclDataType x, aclDataType w) {
  if (w == x || (x == ACL_BF16 && w == ACL_FLOAT)) return x;
  return ACL_FLOAT;
}

}  // namespace mojo
