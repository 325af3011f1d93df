// aclnn calls of the mathematical library that make and read masks.
#include "opbase.h"

using namespace cann_emulation;

namespace {

constexpr std::initializer_list<aclDataType> kNumbers = {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE, ACL_BF16,  ACL_INT8,
                                                         ACL_UINT8, ACL_INT16,   ACL_INT32,  ACL_INT64, ACL_BOOL};

// Plans a copy of the elements on one side of a diagonal of the last two axes; the others become 0.
aclnnStatus Triangle(const char* op, const aclTensor* self, int64_t diagonal, bool upper, aclTensor* out,
                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan(op, workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, o{"out", out};
    p.Inputs({a});
    p.Outputs({o});
    p.Types(a, kNumbers);
    p.SameType(o, a);
    p.Rank(a, 2, 8);
    p.SameDims(o, a);
    p.kernel = [diagonal, upper](const std::vector<Tensor>& t) {
      std::vector<double> x = Load(t[0]);
      const int64_t rows = t[0].Dim(-2), columns = t[0].Dim(-1);
      for (size_t i = 0; i < x.size(); ++i) {
        const int64_t column = i % columns, on = i / columns % rows + diagonal;
        if (upper ? column < on : column > on) x[i] = 0;
      }
      Store(t[1], x);
    };
  });
}

}  // namespace

extern "C" {

aclnnStatus aclnnTriuGetWorkspaceSize(const aclTensor* self, int64_t diagonal, aclTensor* out, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  return Triangle("aclnnTriu", self, diagonal, true, out, workspaceSize, executor);
}

aclnnStatus aclnnTrilGetWorkspaceSize(const aclTensor* self, int64_t diagonal, aclTensor* out, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  return Triangle("aclnnTril", self, diagonal, false, out, workspaceSize, executor);
}

aclnnStatus aclnnEqScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out,
                                          uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan("aclnnEqScalar", workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, o{"out", out};
    p.Inputs({a});
    p.NotNull("other", other);
    p.Outputs({o});
    for (const Argument& x : {a, o}) p.Types(x, kNumbers);
    p.Rank(a, 0, 8);
    p.SameDims(o, a);
    p.kernel = [value = other->value](const std::vector<Tensor>& t) {
      std::vector<double> x = Load(t[0]);
      for (double& v : x) v = v == value;
      Store(t[1], x);
    };
  });
}

aclnnStatus aclnnLogicalOrGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out,
                                           uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan("aclnnLogicalOr", workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, b{"other", other}, o{"out", out};
    p.Inputs({a, b});
    p.Outputs({o});
    for (const Argument& x : {a, b, o}) {
      p.Types(x, kNumbers);
      p.Rank(x, 0, 8);
    }
    std::vector<int64_t> dims;
    p.Require(Broadcast(DimsOf(self), DimsOf(other), &dims), ACLNN_ERR_PARAM_INVALID, "%s and %s cannot be broadcast",
              Dims(DimsOf(self)).c_str(), Dims(DimsOf(other)).c_str());
    p.HasDims(o, dims);
    p.kernel = [](const std::vector<Tensor>& t) {
      std::vector<double> x = Load(Expanded(t[0], t[2].dims));
      const std::vector<double> y = Load(Expanded(t[1], t[2].dims));
      for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] != 0 || y[i] != 0;
      Store(t[2], x);
    };
  });
}

// The emulation supports only the last axis.
aclnnStatus aclnnAllGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepdim, aclTensor* out,
                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan("aclnnAll", workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, o{"out", out};
    p.Inputs({a});
    p.NotNull("dim", dim);
    p.Outputs({o});
    p.Types(a, kNumbers);
    p.Types(o, {ACL_BOOL, ACL_UINT8});
    p.Rank(a, 1, 8);
    std::vector<int64_t> want = DimsOf(self);
    const int64_t last = want.size() - 1, n = want.back();
    p.Require(keepdim && dim->values.size() == 1 && (dim->values[0] == last || dim->values[0] == -1),
              ACLNN_ERR_PARAM_INVALID, "the emulation has the last axis only, and keeps it");
    want.back() = 1;
    p.HasDims(o, want);
    p.kernel = [n](const std::vector<Tensor>& t) {
      const std::vector<double> x = Load(t[0]);
      std::vector<double> all(t[1].Size(), 1);
      for (size_t i = 0; i < x.size(); ++i) {
        if (x[i] == 0) all[i / n] = 0;
      }
      Store(t[1], all);
    };
  });
}
}

SECOND_PHASE(aclnnTriu)
SECOND_PHASE(aclnnTril)
SECOND_PHASE(aclnnEqScalar)
SECOND_PHASE(aclnnLogicalOr)
SECOND_PHASE(aclnnAll)
