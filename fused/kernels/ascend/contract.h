// The types and shapes that CANN's calls take, from the public documentation for Atlas A2 and A3. README.md has the
// same as a table, with links. A kernel refuses an op that needs more when it is made, or else when it runs.
#pragma once

#include "ascend/aclnn.h"
#include "attention/common/attention.h"
#include "moe/common/moe.h"
#include "rotary/common/rotary_embedding.h"

namespace mojo {

// RotaryPositionEmbedding: the last dimension is below this.
constexpr int64_t kRotatedEnd = 896;
// RotaryPositionEmbedding: B and N are below this; with interleaved pairs, their product is.
constexpr int64_t kHeadsEnd = 1000;
// GroupedMatmulV4: the most experts, and the bound of each matrix's rows and columns.
constexpr int64_t kMostExperts = 1024;
constexpr int64_t kWidthEnd = 65536;
// MoeGatingTopKSoftmax: k is at most this.
constexpr int64_t kMostChosen = 1024;

// FlashAttentionScore: the most query heads, and the most channels of each.
constexpr size_t kMostHeads = 256;
constexpr size_t kMostChannels = 768;

// CheckAttention refuses attributes that FlashAttentionScore does not support.
OrtStatus* CheckAttention(const KernelInit& init, const AttentionAttributes& attributes);

// CheckAttentionTensors refuses inputs and sizes that it does not take.
OrtStatus* CheckAttentionTensors(const Api& api, const AttentionTensors& t);

// CheckRotary refuses a rotation of too many channels.
OrtStatus* CheckRotary(const KernelInit& init, const RotaryEmbeddingAttributes& attributes);

// FitsHalves reports whether the tables' sizes suit halves of D channels, x being [B, N, S, D] and the tables
// [B or 1, 1, S, D].
bool FitsHalves(int64_t b, int64_t n, int64_t s, int64_t d, size_t type_size);

// GatesTopK reports whether MoeGatingTopKSoftmax does the routing: the softmax of all logits, then the top k.
bool GatesTopK(const TopKRouterAttributes& attributes, bool biased);

// CheckMoETypes refuses experts whose type is not X's: both matrices of a GroupedMatmul have one type.
OrtStatus* CheckMoETypes(const KernelInit& init);

// CheckMoEShape refuses sizes that the calls do not take.
OrtStatus* CheckMoEShape(const Api& api, const MoEShape& shape);

// CombineType is the type in which MoeFinalizeRoutingV2 sums results of type x with weights of type w: scales have the
// type of the results, or float32 for bfloat16.
aclDataType CombineType(aclDataType x, aclDataType w);

}  // namespace mojo
