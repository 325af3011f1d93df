// aclnn calls of the neural-network library: gather and scatter.
#include "opbase.h"

using namespace cann_emulation;

namespace {

constexpr std::initializer_list<aclDataType> kNumbers = {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE, ACL_BF16,  ACL_INT8,
                                                         ACL_UINT8, ACL_INT16,   ACL_INT32,  ACL_INT64, ACL_BOOL};

// dim as an axis of the tensor, checked.
int64_t Axis(const Planner& p, int64_t dim, const aclTensor* self) {
  const int64_t rank = DimsOf(self).size();
  p.Require(dim >= -rank && dim < rank, ACLNN_ERR_PARAM_INVALID, "dim is %lld for self of shape %s", (long long)dim,
            Dims(DimsOf(self)).c_str());
  return dim < 0 ? dim + rank : dim;
}

// index must have self's rank, and at most self's size in all other axes.
void CheckIndex(const Planner& p, const Argument& index, const aclTensor* self, int64_t axis) {
  p.Types(index, {ACL_INT32, ACL_INT64});
  const std::vector<int64_t>&dims = DimsOf(index.tensor), &of = DimsOf(self);
  bool fits = dims.size() == of.size();
  for (size_t i = 0; fits && i < dims.size(); ++i) fits = int64_t(i) == axis || dims[i] <= of[i];
  p.Require(fits, ACLNN_ERR_PARAM_INVALID, "index has shape %s, self %s", Dims(dims).c_str(), Dims(of).c_str());
}

// For each position of index, the offset in row-major self of the element that it names.
std::vector<size_t> Named(const Tensor& index, const std::vector<int64_t>& self, int64_t axis) {
  const std::vector<double> chosen = Load(index);
  const std::vector<int64_t> strides = RowMajor(self);
  std::vector<size_t> offsets;
  std::vector<int64_t> at(index.dims.size());
  for (double c : chosen) {
    if (c < -self[axis] || c >= self[axis]) {
      throw Failure{ACL_ERROR_RT_AICORE_EXCEPTION,
                    Text("index %g is out of an axis of %lld", c, (long long)self[axis])};
    }
    int64_t offset = (c < 0 ? int64_t(c) + self[axis] : int64_t(c)) * strides[axis];
    for (size_t i = 0; i < at.size(); ++i) offset += int64_t(i) == axis ? 0 : at[i] * strides[i];
    offsets.push_back(offset);
    for (size_t i = at.size(); i-- > 0;) {
      if (++at[i] < index.dims[i]) break;
      at[i] = 0;
    }
  }
  return offsets;
}

}  // namespace

extern "C" {

aclnnStatus aclnnGatherGetWorkspaceSize(const aclTensor* self, const int64_t dim, const aclTensor* index,
                                        aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan("aclnnGather", workspaceSize, executor, [&](Planner& p) {
    const Argument s{"self", self}, n{"index", index}, o{"out", out};
    p.Inputs({s, n});
    p.Outputs({o});
    p.Types(s, kNumbers);
    p.SameType(o, s);
    p.Rank(s, 0, 8);
    const int64_t axis = Axis(p, dim, self);
    CheckIndex(p, n, self, axis);
    p.SameDims(o, n);
    p.kernel = [axis](const std::vector<Tensor>& t) {
      const std::vector<double> x = Load(t[0]);
      std::vector<double> y;
      for (size_t at : Named(t[1], t[0].dims, axis)) y.push_back(x[at]);
      Store(t[2], y);
    };
  });
}

aclnnStatus aclnnGatherV2GetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out,
                                          uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan("aclnnGatherV2", workspaceSize, executor, [&](Planner& p) {
    const Argument s{"self", self}, n{"index", index}, o{"out", out};
    p.Inputs({s, n});
    p.Outputs({o});
    p.Types(s, kNumbers);
    p.Types(n, {ACL_INT32, ACL_INT64});
    p.SameType(o, s);
    for (const Argument& a : {s, n}) p.Rank(a, 1, 8);
    const int64_t axis = Axis(p, dim, self);
    std::vector<int64_t> want = DimsOf(self);
    want.erase(want.begin() + axis);
    want.insert(want.begin() + axis, DimsOf(index).begin(), DimsOf(index).end());
    p.HasDims(o, want);
    p.kernel = [axis](const std::vector<Tensor>& t) {
      const std::vector<double> x = Load(t[0]), rows = Load(t[1]);
      int64_t inner = 1, outer = 1;
      for (int64_t i = 0; i < axis; ++i) outer *= t[0].dims[i];
      for (size_t i = axis + 1; i < t[0].dims.size(); ++i) inner *= t[0].dims[i];
      std::vector<double> y;
      for (int64_t a = 0; a < outer; ++a) {
        for (double row : rows) {
          if (row < 0 || row >= t[0].dims[axis])
            throw Failure{ACL_ERROR_RT_AICORE_EXCEPTION, Text("index %g is out of range", row)};
          const auto from = x.begin() + (a * t[0].dims[axis] + int64_t(row)) * inner;
          y.insert(y.end(), from, from + inner);
        }
      }
      Store(t[2], y);
    };
  });
}

aclnnStatus aclnnInplaceScatterValueGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclTensor* index,
                                                     const aclScalar* value, int64_t reduce, uint64_t* workspaceSize,
                                                     aclOpExecutor** executor) {
  return Plan("aclnnInplaceScatterValue", workspaceSize, executor, [&](Planner& p) {
    const Argument s{"selfRef", selfRef}, n{"index", index};
    p.Outputs({s});
    p.Inputs({n});
    p.NotNull("value", value);
    p.Types(s, kNumbers);
    p.Rank(s, 0, 8);
    p.Require(reduce >= 0 && reduce <= 2, ACLNN_ERR_PARAM_INVALID, "reduce is %lld", (long long)reduce);
    const int64_t axis = Axis(p, dim, selfRef);
    CheckIndex(p, n, selfRef, axis);
    p.kernel = [axis, reduce, v = value->value](const std::vector<Tensor>& t) {
      std::vector<double> x = Load(t[0]);
      for (size_t at : Named(t[1], t[0].dims, axis)) x[at] = reduce == 0 ? v : reduce == 1 ? x[at] + v : x[at] * v;
      Store(t[0], x);
    };
  });
}
}

SECOND_PHASE(aclnnGather)
SECOND_PHASE(aclnnGatherV2)
SECOND_PHASE(aclnnInplaceScatterValue)
