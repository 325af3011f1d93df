// aclnn calls of the transformer library: attention.
#include <cmath>
#include <cstring>

#include "opbase.h"

using namespace cann_emulation;

namespace {

constexpr std::initializer_list<aclDataType> kFloats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

// The attributes of a call of FlashAttentionScore, for tensors of [B, N, S, D].
struct Attention {
  double scale;
  int64_t before, after;  // how far a query sees if there is a mask
};

// Computes rows of scores, and the sums of the values by their softmax. A row that sees no key becomes NaN: the result
// on a device is not documented.
void Attend(const Attention& a, const std::vector<Tensor>& t, bool masked) {
  const Tensor &q = t[0], &k = t[1], &v = t[2];
  const int64_t batch = q.dims[0], heads = q.dims[1], queries = q.dims[2], width = q.dims[3];
  const int64_t shared = heads / k.dims[1], keys = k.dims[2];
  const std::vector<double> x = Load(q), y = Load(k), z = Load(v);
  std::vector<double> mask;
  if (masked) mask = Load(Expanded(t[3], {batch, heads, queries, keys}));
  std::vector<double> out(x.size()), most(batch * heads * queries * 8), sums(most.size()), score(keys);
  for (int64_t row = 0; row < batch * heads * queries; ++row) {
    const int64_t i = row % queries, head = row / queries, key = head / heads * k.dims[1] + head % heads / shared;
    double greatest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      double s = 0;
      for (int64_t c = 0; c < width; ++c) s += x[row * width + c] * y[(key * keys + j) * width + c];
      const bool hidden = masked && (mask[row * keys + j] != 0 || j > i + a.after || j < i - a.before);
      score[j] = hidden ? -INFINITY : s * a.scale;
      greatest = std::max(greatest, score[j]);
    }
    for (double& s : score) sum += s = std::exp(s - greatest);
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t c = 0; c < width; ++c) {
        out[row * width + c] += score[j] / sum * z[(key * keys + j) * width + c];
      }
    }
    for (int64_t c = 0; c < 8; ++c) most[row * 8 + c] = greatest, sums[row * 8 + c] = sum;
  }
  const size_t first = masked ? 4 : 3;
  Store(t[first], most);
  Store(t[first + 1], sums);
  Store(t[first + 2], out);
}

}  // namespace

extern "C" {

aclnnStatus aclnnFlashAttentionScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut, const aclTensor* attentionOutOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan("aclnnFlashAttentionScore", workspaceSize, executor, [&](Planner& p) {
    const Argument q{"query", query}, k{"key", key}, v{"value", value}, m{"attenMaskOptional", attenMaskOptional},
        most{"softmaxMaxOut", softmaxMaxOut}, sum{"softmaxSumOut", softmaxSumOut},
        out{"attentionOutOut", attentionOutOut};
    p.Inputs({q, k, v});
    if (attenMaskOptional) p.Inputs({m});
    p.Outputs({most, sum, out});
    p.NotNull("inputLayout", inputLayout);
    p.Absent("realShiftOptional", realShiftOptional);  // not emulated
    p.Absent("dropMaskOptional", dropMaskOptional);
    p.Absent("paddingMaskOptional", paddingMaskOptional);
    p.Absent("prefixOptional", prefixOptional);
    p.Absent("softmaxOutOut", softmaxOutOut);
    const int invalid = ACLNN_ERR_PARAM_INVALID, tiling = ACLNN_ERR_INNER_TILING_ERROR;
    p.Require(!Is310P(), invalid, "%s is not supported", SocName().c_str());
    p.Types(q, kFloats);
    for (const Argument& a : {k, v, out}) p.SameType(a, q);
    for (const Argument& a : {most, sum}) p.Types(a, {ACL_FLOAT});
    p.Require(strcmp(inputLayout, "BNSD") == 0, invalid, "inputLayout is %s, and the emulation has BNSD", inputLayout);
    p.Require(keepProb == 1 && sparseMode == 0 && innerPrecise == 0, invalid,
              "keepProb is %g, sparseMode %lld and innerPrecise %lld, and the emulation has 1, 0 and 0", keepProb,
              (long long)sparseMode, (long long)innerPrecise);
    for (const Argument& a : {q, k, v}) p.Rank(a, 4, 4);
    const std::vector<int64_t>&dq = DimsOf(query), &dk = DimsOf(key);
    p.SameDims(v, k, tiling);
    p.SameDims(out, q, tiling);
    p.Require(dk[0] == dq[0] && dk[3] == dq[3] && dk[1] > 0 && dq[1] % dk[1] == 0, tiling,
              "query has shape %s and key %s", Dims(dq).c_str(), Dims(dk).c_str());
    p.Require(headNum == dq[1] && headNum >= 1 && headNum <= 256, tiling, "headNum is %lld, query has shape %s",
              (long long)headNum, Dims(dq).c_str());
    p.Require(dq[3] >= 1 && dq[3] <= 768, tiling, "a head has %lld channels", (long long)dq[3]);
    for (int64_t s : {dq[2], dk[2]})
      p.Require(s >= 1 && s <= 1 << 20, tiling, "a sequence has %lld tokens", (long long)s);
    for (const Argument& a : {most, sum}) p.HasDims(a, {dq[0], dq[1], dq[2], 8}, tiling);
    const bool masked = attenMaskOptional != nullptr;
    if (masked) {
      p.Types(m, {ACL_BOOL, ACL_UINT8});
      const std::vector<int64_t>& d = DimsOf(attenMaskOptional);
      const std::vector<int64_t> rows = {dq[2], dk[2]}, all = {1, 1, dq[2], dk[2]}, each = {dq[0], 1, dq[2], dk[2]},
                                 heads = {dq[0], dq[1], dq[2], dk[2]};
      p.Require(d == rows || d == all || d == each || d == heads, tiling, "attenMaskOptional has shape %s",
                Dims(d).c_str());
    }
    const Attention a{scaleValue, preTokens, nextTokens};
    p.kernel = [a, masked](const std::vector<Tensor>& t) { Attend(a, t, masked); };
  });
}
}

SECOND_PHASE(aclnnFlashAttentionScore)
