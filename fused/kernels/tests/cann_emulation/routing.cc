// aclnn calls of the transformer library: routing of a mixture of experts.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "opbase.h"

using namespace cann_emulation;

namespace {

constexpr std::initializer_list<aclDataType> kFloats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

// The stable order of the keys.
std::vector<size_t> Sorted(const std::vector<double>& keys) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return keys[a] < keys[b]; });
  return order;
}

void GatingTopKSoftmax(const std::vector<Tensor>& t, int64_t k) {
  std::vector<double> x = Load(t[0]), finished = t[4] ? Load(t[4]) : std::vector<double>();
  const int64_t experts = t[0].Dim(-1), rows = t[0].Size() / experts;
  std::vector<double> y, ids, row_ids;
  for (int64_t row = 0; row < rows; ++row) {
    double* v = &x[row * experts];
    const double greatest = *std::max_element(v, v + experts);
    double sum = 0;
    for (int64_t i = 0; i < experts; ++i) sum += v[i] = std::exp(v[i] - greatest);
    std::vector<int64_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return v[a] > v[b]; });
    for (int64_t j = 0; j < k; ++j) {
      y.push_back(v[order[j]] / sum);
      ids.push_back(finished.empty() || !finished[row] ? order[j] : experts);
      row_ids.push_back(Is310P() ? 0 : j * rows + row);
    }
  }
  Store(t[1], y);
  Store(t[2], ids);
  Store(t[3], row_ids);
}

void InitRouting(const std::vector<Tensor>& t, int64_t experts, int64_t counted) {
  const std::vector<double> x = Load(t[0]), ids = Load(t[1]);
  const int64_t k = t[1].dims[1], width = t[0].dims[1], kept = t[2].dims[0];
  const std::vector<size_t> order = Sorted(ids);
  std::vector<double> rows, where(ids.size()), counts(counted ? experts : 0);
  for (size_t i = 0; i < order.size(); ++i) {
    where[order[i]] = static_cast<double>(i);
    const double expert = ids[order[i]];
    if (expert < 0 || (counted && expert >= experts))
      throw Failure{ACL_ERROR_RT_AICORE_EXCEPTION, Text("expertIdx has %g", expert)};
    if (counted) ++counts[size_t(expert)];
    if (int64_t(i) >= kept) continue;
    const auto from = x.begin() + order[i] / k * width;
    rows.insert(rows.end(), from, from + width);
  }
  if (counted == 1) std::partial_sum(counts.begin(), counts.end(), counts.begin());
  Store(t[2], rows);
  Store(t[3], where);
  if (counted) Store(t[4], counts);
}

void FinalizeRouting(const std::vector<Tensor>& t, int64_t mode) {
  enum { kX, kRow, kX1, kX2, kBias, kScales, kExpert, kOut };
  std::vector<std::vector<double>> v;
  for (int i = 0; i < kOut; ++i) v.push_back(t[i] ? Load(t[i]) : std::vector<double>());
  const int64_t rows = t[kOut].dims[0], width = t[kOut].dims[1], k = t[kScales] ? t[kScales].dims[1] : 1;
  const int64_t last = t[kX].Size() / width - 1;
  const bool drop = mode == 1 || mode == 3;
  std::vector<double> out(rows * width);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t h = 0; h < width; ++h) {
      double sum = (t[kX1] ? v[kX1][i * width + h] : 0) + (t[kX2] ? v[kX2][i * width + h] : 0);
      for (int64_t j = 0; j < k; ++j) {
        const double at = v[kRow][mode >= 2 ? i * k + j : j * rows + i];
        if (at < (drop ? -1 : 0) || at > last)
          throw Failure{ACL_ERROR_RT_AICORE_EXCEPTION, Text("expandedRowIdx has %g", at)};
        const double bias = t[kBias] ? v[kBias][int64_t(v[kExpert][i * k + j]) * width + h] : 0;
        const double x = at < 0 ? 0 : v[kX][int64_t(at) * width + h];
        sum += (t[kScales] ? v[kScales][i * k + j] : 1) * (x + bias);
      }
      out[i * width + h] = sum;
    }
  }
  Store(t[kOut], out);
}

}  // namespace

extern "C" {

aclnnStatus aclnnMoeGatingTopKSoftmaxGetWorkspaceSize(const aclTensor* x, const aclTensor* finishedOptional, int64_t k,
                                                      const aclTensor* yOut, const aclTensor* expertIdxOut,
                                                      const aclTensor* rowIdxOut, uint64_t* workspaceSize,
                                                      aclOpExecutor** executor) {
  return Plan("aclnnMoeGatingTopKSoftmax", workspaceSize, executor, [&](Planner& p) {
    const Argument ax{"x", x}, ay{"yOut", yOut}, ae{"expertIdxOut", expertIdxOut}, ar{"rowIdxOut", rowIdxOut},
        af{"finishedOptional", finishedOptional};
    p.Inputs({ax});
    p.Outputs({ay, ae, ar});
    p.Optional({af});
    p.Types(ax, kFloats);
    p.SameType(ay, ax);
    for (const Argument& a : {ae, ar}) p.Types(a, {ACL_INT32});
    for (const Argument& a : {ay, ae, ar}) p.Contiguous(a);
    const int tiling = ACLNN_ERR_INNER_TILING_ERROR;
    p.Rank(ax, 2, 3, tiling);
    const int64_t experts = x->tensor.Dim(-1);
    p.Require(k >= 0 && k <= experts && k <= 1024, tiling, "k is %lld for %lld experts", (long long)k,
              (long long)experts);
    std::vector<int64_t> want = DimsOf(x);
    want.back() = k;
    for (const Argument& a : {ay, ae, ar}) p.HasDims(a, want, tiling);
    if (finishedOptional) {
      p.Types(af, {ACL_BOOL});
      want.pop_back();
      p.HasDims(af, want, tiling);
    }
    if (Is310P()) {
      p.Types(ax, {ACL_FLOAT16});
      p.Absent("finishedOptional", finishedOptional);
      p.Require(experts % 16 == 0 && experts <= 256, tiling, "%lld experts, no multiple of 16 up to 256",
                (long long)experts);
    }
    p.kernel = [k](const std::vector<Tensor>& t) { GatingTopKSoftmax(t, k); };
  });
}

aclnnStatus aclnnMoeInitRoutingV2GetWorkspaceSize(
    const aclTensor* x, const aclTensor* expertIdx, int64_t activeNum, int64_t expertCapacity, int64_t expertNum,
    int64_t dropPadMode, int64_t expertTokensCountOrCumsumFlag, bool expertTokensBeforeCapacityFlag,
    const aclTensor* expandedXOut, const aclTensor* expandedRowIdxOut, const aclTensor* expertTokensCountOrCumsumOut,
    const aclTensor* expertTokensBeforeCapacityOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan("aclnnMoeInitRoutingV2", workspaceSize, executor, [&](Planner& p) {
    const Argument ax{"x", x}, ai{"expertIdx", expertIdx}, ao{"expandedXOut", expandedXOut},
        ar{"expandedRowIdxOut", expandedRowIdxOut}, ac{"expertTokensCountOrCumsumOut", expertTokensCountOrCumsumOut};
    const int64_t flag = expertTokensCountOrCumsumFlag;
    p.Inputs({ax, ai});
    p.Outputs({ao, ar});
    p.Types(ax, kFloats);
    p.SameType(ao, ax);
    for (const Argument& a : {ai, ar}) p.Types(a, {ACL_INT32});
    for (const Argument& a : {ao, ar}) p.Contiguous(a);
    const int shape = ACLNN_ERR_INNER_NULLPTR;  // the documented code
    for (const Argument& a : {ax, ai}) p.Rank(a, 2, 2, shape);
    const int64_t rows = DimsOf(x)[0], width = DimsOf(x)[1], k = DimsOf(expertIdx)[1];
    p.Require(DimsOf(expertIdx)[0] == rows, shape, "expertIdx has shape %s, x %s", Dims(DimsOf(expertIdx)).c_str(),
              Dims(DimsOf(x)).c_str());
    p.Require(activeNum >= 0 && expertCapacity >= 0 && expertNum >= 0, shape,
              "activeNum %lld, expertCapacity %lld, expertNum %lld", (long long)activeNum, (long long)expertCapacity,
              (long long)expertNum);
    p.Require(dropPadMode == 0 || dropPadMode == 1, shape, "dropPadMode is %lld", (long long)dropPadMode);
    p.Require(dropPadMode == 0, ACLNN_ERR_INNER, "the emulation has dropPadMode 0 only");
    p.Require(flag >= 0 && flag <= 2, shape, "expertTokensCountOrCumsumFlag is %lld", (long long)flag);
    p.Require(!expertTokensBeforeCapacityFlag || expertTokensBeforeCapacityOut, ACLNN_ERR_PARAM_NULLPTR,
              "expertTokensBeforeCapacityOut is NULL");
    p.HasDims(ao, {activeNum ? std::min(activeNum, rows * k) : rows * k, width}, shape);
    p.HasDims(ar, {rows * k}, shape);
    p.Require(!Is310P() || width % 32 == 0, shape, "the rows of x have %lld elements, no multiple of 32",
              (long long)width);
    if (flag) {
      p.Outputs({ac});
      p.Require(expertNum > 0, shape, "expertNum is 0");
      p.Types(ac, {ACL_INT32});
      p.HasDims(ac, {expertNum}, shape);
    }
    p.kernel = [expertNum, flag](const std::vector<Tensor>& t) { InitRouting(t, expertNum, flag); };
  });
}

aclnnStatus aclnnMoeFinalizeRoutingV2GetWorkspaceSize(const aclTensor* expandedX, const aclTensor* expandedRowIdx,
                                                      const aclTensor* x1Optional, const aclTensor* x2Optional,
                                                      const aclTensor* biasOptional, const aclTensor* scalesOptional,
                                                      const aclTensor* expertIdxOptional, int64_t dropPadMode,
                                                      const aclTensor* out, uint64_t* workspaceSize,
                                                      aclOpExecutor** executor) {
  return Plan("aclnnMoeFinalizeRoutingV2", workspaceSize, executor, [&](Planner& p) {
    const Argument ax{"expandedX", expandedX}, ar{"expandedRowIdx", expandedRowIdx}, a1{"x1Optional", x1Optional},
        a2{"x2Optional", x2Optional}, ab{"biasOptional", biasOptional}, as{"scalesOptional", scalesOptional},
        ae{"expertIdxOptional", expertIdxOptional}, ao{"out", out};
    const int shape = ACLNN_ERR_INNER_NULLPTR;  // the documented code
    p.Inputs({ax, ar});
    p.Optional({a1, a2, ab, as, ae});
    p.Outputs({ao});
    p.Types(ax, kFloats);
    p.Types(ar, {ACL_INT32});
    for (const Argument& a : {a1, a2, ab, ao}) {
      if (a.tensor) p.SameType(a, ax);
    }
    if (scalesOptional && !(TypeOf(expandedX) == ACL_BF16 && TypeOf(scalesOptional) == ACL_FLOAT)) p.SameType(as, ax);
    p.Require(dropPadMode >= 0 && dropPadMode <= 3, shape, "dropPadMode is %lld", (long long)dropPadMode);
    p.Rank(ao, 2, 2, shape);
    p.Contiguous(ao);
    const int64_t rows = DimsOf(out)[0], width = DimsOf(out)[1], k = scalesOptional ? DimsOf(scalesOptional).back() : 1;
    for (const Argument& a : {ax, ar, ao}) p.Require(a.tensor->tensor.Size() > 0, shape, "%s is empty", a.name);
    if (dropPadMode % 2) {
      p.Rank(ax, 3, 3, shape);
    } else {
      p.HasDims(ax, {rows * k, width}, shape);
    }
    p.Require(expandedX->tensor.Dim(-1) == width, shape, "expandedX has shape %s, out %s",
              Dims(DimsOf(expandedX)).c_str(), Dims(DimsOf(out)).c_str());
    p.HasDims(ar, {rows * k}, shape);
    if (scalesOptional) p.HasDims(as, {rows, k}, shape);
    for (const Argument& a : {a1, a2}) {
      if (a.tensor) p.SameDims(a, ao, shape);
    }
    p.Require(x1Optional || !x2Optional, shape, "x2Optional comes without x1Optional");
    if (biasOptional) {
      p.Require(expertIdxOptional, shape, "biasOptional comes without expertIdxOptional");
      p.Rank(ab, 2, 2, shape);
    }
    if (expertIdxOptional) {
      p.Types(ae, {ACL_INT32});
      p.HasDims(ae, {rows, k}, shape);
    }
    if (Is310P()) {
      for (const Argument& a : {a1, a2, ab, ae}) p.Absent(a.name, a.tensor);
      p.Require(dropPadMode == 2, shape, "dropPadMode is %lld, not 2", (long long)dropPadMode);
      p.Require(width % 32 == 0, shape, "the rows of out have %lld elements, no multiple of 32", (long long)width);
    }
    p.kernel = [dropPadMode](const std::vector<Tensor>& t) { FinalizeRouting(t, dropPadMode); };
  });
}
}

SECOND_PHASE(aclnnMoeGatingTopKSoftmax)
SECOND_PHASE(aclnnMoeInitRoutingV2)
SECOND_PHASE(aclnnMoeFinalizeRoutingV2)
