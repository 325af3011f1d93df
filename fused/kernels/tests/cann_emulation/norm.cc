// aclnn calls of the neural-network library: norms.
#include <algorithm>
#include <cmath>

#include "opbase.h"

using namespace cann_emulation;

namespace {

constexpr std::initializer_list<aclDataType> kFloats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

// The shape of rstd: x's, with 1 for the axes that gamma spans.
std::vector<int64_t> RstdDims(const std::vector<int64_t>& x, size_t axes) {
  std::vector<int64_t> dims = x;
  for (size_t i = x.size() - axes; i < x.size(); ++i) dims[i] = 1;
  return dims;
}

// Whether gamma has the shape of x's last axes.
bool IsTail(const std::vector<int64_t>& gamma, const std::vector<int64_t>& x) {
  return !gamma.empty() && gamma.size() <= x.size() && std::equal(gamma.rbegin(), gamma.rend(), x.rbegin());
}

// y = x * rstd * gamma for each row as long as gamma; returns rstd.
std::vector<double> Normalize(std::vector<double>* x, const std::vector<double>& gamma, double epsilon) {
  const size_t n = gamma.size();
  std::vector<double> rstd(n ? x->size() / n : 0);
  for (size_t row = 0; row < rstd.size(); ++row) {
    double* values = &(*x)[row * n];
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += values[i] * values[i];
    rstd[row] = 1 / std::sqrt(sum / n + epsilon);
    for (size_t i = 0; i < n; ++i) values[i] *= rstd[row] * gamma[i];
  }
  return rstd;
}

}  // namespace

extern "C" {

aclnnStatus aclnnRmsNormGetWorkspaceSize(const aclTensor* x, const aclTensor* gamma, double epsilon,
                                         const aclTensor* yOut, const aclTensor* rstdOut, uint64_t* workspaceSize,
                                         aclOpExecutor** executor) {
  return Plan("aclnnRmsNorm", workspaceSize, executor, [&](Planner& p) {
    const Argument ax{"x", x}, ag{"gamma", gamma}, ay{"yOut", yOut}, ar{"rstdOut", rstdOut};
    p.Inputs({ax, ag});
    p.Outputs({ay, ar});
    p.Types(ax, kFloats);
    p.Types(ag, kFloats);
    p.Types(ay, kFloats);
    p.SameType(ay, ax);
    if (Is310P() || TypeOf(gamma) != ACL_FLOAT) p.SameType(ag, ax);
    p.Types(ar, {ACL_FLOAT});
    p.Rank(ax, 1, 8, ACLNN_ERR_INNER_TILING_ERROR);
    p.Require(IsTail(DimsOf(gamma), DimsOf(x)) && gamma->tensor.Size(), ACLNN_ERR_INNER_TILING_ERROR,
              "gamma has shape %s, which is not that of the last axes of x, %s", Dims(DimsOf(gamma)).c_str(),
              Dims(DimsOf(x)).c_str());
    p.SameDims(ay, ax, ACLNN_ERR_INNER_TILING_ERROR);
    p.HasDims(ar, RstdDims(DimsOf(x), DimsOf(gamma).size()), ACLNN_ERR_INNER_TILING_ERROR);
    p.Require(!Is310P() || x->tensor.Dim(-1) * aclDataTypeSize(TypeOf(x)) >= 32, ACLNN_ERR_INNER_TILING_ERROR,
              "the last axis has %lld elements, less than 32 bytes", (long long)x->tensor.Dim(-1));
    p.kernel = [epsilon](const std::vector<Tensor>& t) {
      std::vector<double> y = Load(t[0]);
      const std::vector<double> rstd = Normalize(&y, Load(t[1]), epsilon);
      Store(t[2], y);
      Store(t[3], rstd);
    };
  });
}

aclnnStatus aclnnAddRmsNormGetWorkspaceSize(const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma,
                                            double epsilon, aclTensor* yOut, aclTensor* rstdOut, aclTensor* xOut,
                                            uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan("aclnnAddRmsNorm", workspaceSize, executor, [&](Planner& p) {
    const Argument a1{"x1", x1}, a2{"x2", x2}, ag{"gamma", gamma}, ay{"yOut", yOut}, ar{"rstdOut", rstdOut},
        ax{"xOut", xOut};
    p.Inputs({a1, a2, ag});
    p.Outputs({ay, ar, ax});  // which may be NULL only with a gamma of shape [1, n], which is not emulated
    p.Types(a1, kFloats);
    for (const Argument& a : {a2, ag, ay, ax}) p.SameType(a, a1);
    p.Types(ar, {ACL_FLOAT});
    p.Require(epsilon >= 0, ACLNN_ERR_PARAM_INVALID, "epsilon is %g", epsilon);
    p.Rank(a1, 1, 8);
    for (const Argument& a : {a2, ay, ax}) p.SameDims(a, a1);
    p.Require(IsTail(DimsOf(gamma), DimsOf(x1)), ACLNN_ERR_PARAM_INVALID,
              "gamma has shape %s, which is not that of the last axes of x1, %s", Dims(DimsOf(gamma)).c_str(),
              Dims(DimsOf(x1)).c_str());
    p.HasDims(ar, RstdDims(DimsOf(x1), DimsOf(gamma).size()));
    p.kernel = [epsilon](const std::vector<Tensor>& t) {
      std::vector<double> y = Load(t[0]);
      const std::vector<double> other = Load(t[1]);
      for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(y[i] + other[i]);
      Store(t[5], y);
      // The sum is not rounded to the output's type before it is normalized.
      const std::vector<double> rstd = Normalize(&y, Load(t[2]), epsilon);
      Store(t[3], y);
      if (!Is310P()) Store(t[4], rstd);  // rstdOut is not valid there
    };
  });
}
}

SECOND_PHASE(aclnnRmsNorm)
SECOND_PHASE(aclnnAddRmsNorm)
