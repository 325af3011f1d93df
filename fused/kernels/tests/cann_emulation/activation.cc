// aclnn calls of the neural-network library: activations and softmax.
#include <cmath>

#include "../activations.h"
#include "opbase.h"

using namespace cann_emulation;

namespace {

constexpr std::initializer_list<aclDataType> kFloats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Plans out = f(self), both of one type and shape.
aclnnStatus Activation(const char* op, const aclTensor* self, const aclTensor* out,
                       const std::function<double(double)>& f, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan(op, workspaceSize, executor, [&](Planner& p) {
    const Argument s{"self", self}, o{"out", out};
    p.Inputs({s});
    p.Outputs({o});
    p.Types(s, kFloats);
    p.SameType(o, s);
    p.Rank(s, 0, 8);
    p.SameDims(o, s);
    p.kernel = [f](const std::vector<Tensor>& t) {
      std::vector<double> x = Load(t[0]);
      for (double& v : x) v = f(v);
      Store(t[1], x);
    };
  });
}

}  // namespace

extern "C" {

aclnnStatus aclnnSwiGluGetWorkspaceSize(const aclTensor* x, int64_t dim, const aclTensor* out, uint64_t* workspaceSize,
                                        aclOpExecutor** executor) {
  return Plan("aclnnSwiGlu", workspaceSize, executor, [&](Planner& p) {
    const Argument ax{"x", x}, ao{"out", out};
    p.Inputs({ax});
    p.Outputs({ao});
    p.Types(ax, kFloats);
    p.SameType(ao, ax);
    p.Contiguous(ax);
    p.Contiguous(ao);
    const int64_t rank = DimsOf(x).size();
    p.Require(rank > 0 && dim >= -rank && dim < rank, ACLNN_ERR_PARAM_INVALID, "dim is %lld for x of shape %s",
              (long long)dim, Dims(DimsOf(x)).c_str());
    const int64_t axis = dim < 0 ? dim + rank : dim;
    std::vector<int64_t> half = DimsOf(x);
    p.Require(half[axis] % 2 == 0, ACLNN_ERR_PARAM_INVALID, "axis %lld of x has an odd size: %lld", (long long)axis,
              (long long)half[axis]);
    half[axis] /= 2;
    p.HasDims(ao, half);
    if (Is310P()) {
      p.Require(x->tensor.Size() > 0, ACLNN_ERR_PARAM_INVALID, "x is empty");
      p.Require(out->tensor.Dim(-1) * aclDataTypeSize(TypeOf(x)) % 64 == 0, ACLNN_ERR_PARAM_INVALID,
                "the last axis of out has %lld elements, no multiple of 64 bytes", (long long)out->tensor.Dim(-1));
    }
    p.kernel = [axis](const std::vector<Tensor>& t) {
      Tensor gate = t[0], up = t[0];
      gate.dims[axis] = up.dims[axis] = t[1].dims[axis];
      up.offset += t[1].dims[axis] * up.strides[axis];
      std::vector<double> y = Load(gate);
      const std::vector<double> b = Load(up);
      for (size_t i = 0; i < y.size(); ++i) y[i] = y[i] * Sigmoid(y[i]) * b[i];
      Store(t[1], y);
    };
  });
}

aclnnStatus aclnnSiluGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  return Activation("aclnnSilu", self, out, [](double x) { return x * Sigmoid(x); }, workspaceSize, executor);
}

aclnnStatus aclnnSigmoidGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                         aclOpExecutor** executor) {
  return Activation("aclnnSigmoid", self, out, Sigmoid, workspaceSize, executor);
}

aclnnStatus aclnnInplaceSigmoidGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Activation("aclnnInplaceSigmoid", selfRef, selfRef, Sigmoid, workspaceSize, executor);
}

aclnnStatus aclnnReluGetWorkspaceSize(const aclTensor* self, const aclTensor* out, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  return Activation(
      "aclnnRelu", self, out, [](double x) { return x > 0 || std::isnan(x) ? x : 0; }, workspaceSize, executor);
}

aclnnStatus aclnnGeluGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  return Activation("aclnnGelu", self, out, mojo_test::GeluTanh, workspaceSize, executor);
}

aclnnStatus aclnnGeluV2GetWorkspaceSize(const aclTensor* x, int64_t approximate, aclTensor* y, uint64_t* workspaceSize,
                                        aclOpExecutor** executor) {
  if (approximate != 0 && approximate != 1) {
    Called("aclnnGeluV2GetWorkspaceSize");
    return Refuse(ACLNN_ERR_PARAM_INVALID,
                  Text("aclnnGeluV2: approximate is %lld, not 0 or 1", (long long)approximate));
  }
  return Activation("aclnnGeluV2", x, y, approximate ? mojo_test::GeluTanh : mojo_test::Gelu, workspaceSize, executor);
}

aclnnStatus aclnnSwishGetWorkspaceSize(const aclTensor* self, const aclScalar* betaOptional, aclTensor* out,
                                       uint64_t* workspaceSize, aclOpExecutor** executor) {
  const double beta = betaOptional ? betaOptional->value : 1;
  return Activation(
      "aclnnSwish", self, out, [beta](double x) { return x * Sigmoid(beta * x); }, workspaceSize, executor);
}

aclnnStatus aclnnSoftplusGetWorkspaceSize(const aclTensor* self, const aclScalar* beta, const aclScalar* threshold,
                                          aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  if (!beta || !threshold) {
    return Plan("aclnnSoftplus", workspaceSize, executor, [&](Planner& p) {
      p.NotNull("beta", beta);
      p.NotNull("threshold", threshold);
    });
  }
  const double b = beta->value, most = threshold->value;
  return Activation(
      "aclnnSoftplus", self, out, [b, most](double x) { return b * x > most ? x : std::log1p(std::exp(b * x)) / b; },
      workspaceSize, executor);
}

aclnnStatus aclnnSoftmaxGetWorkspaceSize(const aclTensor* self, int64_t dim, aclTensor* out, uint64_t* workspaceSize,
                                         aclOpExecutor** executor) {
  return Plan("aclnnSoftmax", workspaceSize, executor, [&](Planner& p) {
    const Argument s{"self", self}, o{"out", out};
    p.Inputs({s});
    p.Outputs({o});
    for (const Argument& a : {s, o}) p.Types(a, {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE});
    p.Rank(s, 0, 8);
    p.SameDims(o, s);
    const int64_t rank = DimsOf(self).size();
    p.Require(dim >= -rank && dim < rank, ACLNN_ERR_PARAM_INVALID, "dim is %lld for self of shape %s", (long long)dim,
              Dims(DimsOf(self)).c_str());
    const int64_t axis = dim < 0 ? dim + rank : dim;
    p.kernel = [axis, rank](const std::vector<Tensor>& t) {
      std::vector<int64_t> axes;  // with the softmax's axis last
      for (int64_t i = 0; i < rank; ++i) {
        if (i != axis) axes.push_back(i);
      }
      axes.push_back(axis);
      std::vector<double> x = Load(Permuted(t[0], axes));
      const size_t n = t[0].dims[axis];
      for (size_t row = 0; row < x.size(); row += n) {
        double greatest = x[row], sum = 0;
        for (size_t i = 0; i < n; ++i) greatest = std::fmax(greatest, x[row + i]);
        for (size_t i = 0; i < n; ++i) sum += x[row + i] = std::exp(x[row + i] - greatest);
        for (size_t i = 0; i < n; ++i) x[row + i] /= sum;
      }
      Store(Permuted(t[1], axes), x);
    };
  });
}
}

SECOND_PHASE(aclnnSwiGlu)
SECOND_PHASE(aclnnSilu)
SECOND_PHASE(aclnnSigmoid)
SECOND_PHASE(aclnnInplaceSigmoid)
SECOND_PHASE(aclnnRelu)
SECOND_PHASE(aclnnGelu)
SECOND_PHASE(aclnnGeluV2)
SECOND_PHASE(aclnnSwish)
SECOND_PHASE(aclnnSoftplus)
SECOND_PHASE(aclnnSoftmax)
