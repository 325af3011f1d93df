// aclnn calls of the mathematical library that work along an axis.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "opbase.h"

using namespace cann_emulation;

namespace {

constexpr std::initializer_list<aclDataType> kNumbers = {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE, ACL_BF16,  ACL_INT8,
                                                         ACL_UINT8, ACL_INT16,   ACL_INT32,  ACL_INT64, ACL_BOOL};

}  // namespace

extern "C" {

aclnnStatus aclnnPermuteGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, aclTensor* out,
                                         uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan("aclnnPermute", workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, o{"out", out};
    p.Inputs({a});
    p.NotNull("dims", dims);
    p.Outputs({o});
    p.Types(a, kNumbers);
    p.SameType(o, a);
    p.Rank(a, 0, 8);
    const int64_t rank = DimsOf(self).size();
    std::vector<int64_t> axes, want;
    for (int64_t axis : dims->values) {
      p.Require(axis >= -rank && axis < rank, ACLNN_ERR_PARAM_INVALID, "dims has %lld for %lld axes", (long long)axis,
                (long long)rank);
      axes.push_back(axis < 0 ? axis + rank : axis);
      want.push_back(DimsOf(self)[axes.back()]);
    }
    p.Require(int64_t(std::set<int64_t>(axes.begin(), axes.end()).size()) == rank && int64_t(axes.size()) == rank,
              ACLNN_ERR_PARAM_INVALID, "dims is no permutation of the axes");
    p.HasDims(o, want);
    p.kernel = [axes](const std::vector<Tensor>& t) { Store(t[1], Load(Permuted(t[0], axes))); };
  });
}

aclnnStatus aclnnTopkGetWorkspaceSize(const aclTensor* self, int64_t k, int64_t dim, bool largest, bool sorted,
                                      aclTensor* valuesOut, aclTensor* indicesOut, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  return Plan("aclnnTopk", workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, v{"valuesOut", valuesOut}, n{"indicesOut", indicesOut};
    p.Inputs({a});
    p.Outputs({v, n});
    p.Types(a, {ACL_INT8, ACL_UINT8, ACL_INT16, ACL_INT32, ACL_INT64, ACL_FLOAT16, ACL_FLOAT, ACL_DOUBLE, ACL_BF16});
    p.SameType(v, a);
    p.Types(n, {ACL_INT64});
    p.Rank(a, 1, 8);
    const int64_t rank = DimsOf(self).size();
    p.Require(dim >= -rank && dim < rank, ACLNN_ERR_PARAM_INVALID, "dim is %lld", (long long)dim);
    const int64_t axis = dim < 0 ? dim + rank : dim;
    std::vector<int64_t> want = DimsOf(self);
    p.Require(axis == rank - 1, ACLNN_ERR_INNER, "the emulation has the last axis only");
    p.Require(k >= 0 && k <= want[axis], ACLNN_ERR_PARAM_INVALID, "k is %lld for an axis of %lld", (long long)k,
              (long long)want[axis]);
    p.Require(sorted, ACLNN_ERR_PARAM_INVALID, "sorted is false, which is not supported");
    want[axis] = k;
    p.HasDims(v, want);
    p.HasDims(n, want);
    p.kernel = [k, largest](const std::vector<Tensor>& t) {
      const std::vector<double> x = Load(t[0]);
      const size_t width = t[0].Dim(-1);
      std::vector<double> values, indices;
      for (size_t row = 0; row < x.size(); row += width) {
        std::vector<size_t> order(width);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
          return largest ? x[row + i] > x[row + j] : x[row + i] < x[row + j];
        });
        for (int64_t i = 0; i < k; ++i) {
          values.push_back(x[row + order[i]]);
          indices.push_back(static_cast<double>(order[i]));
        }
      }
      Store(t[1], values);
      Store(t[2], indices);
    };
  });
}

aclnnStatus aclnnReduceSumGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, bool keepDims,
                                           aclDataType dtype, aclTensor* out, uint64_t* workspaceSize,
                                           aclOpExecutor** executor) {
  return Plan("aclnnReduceSum", workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, o{"out", out};
    p.Inputs({a});
    p.NotNull("dims", dims);
    p.Outputs({o});
    for (const Argument& x : {a, o}) p.Types(x, kNumbers);
    p.Require(TypeOf(out) == dtype, ACLNN_ERR_PARAM_INVALID, "out is of %s, dtype is %s", TypeName(TypeOf(out)),
              TypeName(dtype));
    p.Rank(a, 0, 8);
    const int64_t rank = DimsOf(self).size();
    std::set<int64_t> summed;
    for (int64_t axis : dims->values) {
      p.Require(axis >= -rank && axis < rank, ACLNN_ERR_PARAM_INVALID, "dims has %lld for %lld axes", (long long)axis,
                (long long)rank);
      p.Require(summed.insert(axis < 0 ? axis + rank : axis).second, ACLNN_ERR_PARAM_INVALID, "dims has an axis twice");
    }
    if (dims->values.empty()) {
      for (int64_t i = 0; i < rank; ++i) summed.insert(i);
    }
    std::vector<int64_t> want, order, last(summed.begin(), summed.end());
    int64_t n = 1;
    for (int64_t i = 0; i < rank; ++i) {
      const bool gone = summed.count(i) != 0;
      if (gone) n *= DimsOf(self)[i];
      if (!gone) order.push_back(i);
      if (!gone) want.push_back(DimsOf(self)[i]);
      if (gone && keepDims) want.push_back(1);
    }
    order.insert(order.end(), last.begin(), last.end());
    p.HasDims(o, want);
    p.kernel = [order, n](const std::vector<Tensor>& t) {
      const std::vector<double> x = Load(Permuted(t[0], order));
      std::vector<double> sums(t[1].Size());
      for (size_t i = 0; i < x.size(); ++i) sums[i / n] += x[i];
      Store(t[1], sums);
    };
  });
}
}

SECOND_PHASE(aclnnPermute)
SECOND_PHASE(aclnnTopk)
SECOND_PHASE(aclnnReduceSum)
