// aclnn calls of the mathematical library: element by element.
#include <cmath>

#include "opbase.h"

using namespace cann_emulation;

namespace {

constexpr std::initializer_list<aclDataType> kNumbers = {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE, ACL_BF16,  ACL_INT8,
                                                         ACL_UINT8, ACL_INT16,   ACL_INT32,  ACL_INT64, ACL_BOOL};
constexpr std::initializer_list<aclDataType> kFloats = {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE, ACL_BF16};
constexpr std::initializer_list<aclDataType> kAll = {ACL_FLOAT,  ACL_FLOAT16, ACL_DOUBLE, ACL_BF16,  ACL_INT8,
                                                     ACL_UINT8,  ACL_INT16,   ACL_INT32,  ACL_INT64, ACL_BOOL,
                                                     ACL_UINT16, ACL_UINT32,  ACL_UINT64};

int Width(aclDataType type) { return type == ACL_BOOL ? 0 : static_cast<int>(aclDataTypeSize(type)); }

// The type that an operator of two types computes in, by the documented table.
aclDataType Promoted(aclDataType a, aclDataType b) {
  if (a == b) return a;
  if (IsFloating(a) != IsFloating(b)) return IsFloating(a) ? a : b;
  if (IsFloating(a)) return Width(a) == Width(b) ? ACL_FLOAT : Width(a) > Width(b) ? a : b;
  if (Width(a) == Width(b)) return ACL_INT16;  // INT8 and UINT8
  return Width(a) > Width(b) ? a : b;
}

// The type for a tensor and a scalar: the scalar's counts only if it is of another kind.
aclDataType PromotedScalar(aclDataType tensor, aclDataType scalar) {
  return IsFloating(tensor) || !IsFloating(scalar) ? tensor : ACL_FLOAT;
}

using Binary = std::function<double(double, double)>;

void CheckConversion(const Planner& p, aclDataType computed, const Argument& out) {
  p.Require(IsFloating(TypeOf(out.tensor)) || !IsFloating(computed), ACLNN_ERR_PARAM_INVALID,
            "%s is of %s, the result of %s", out.name, TypeName(TypeOf(out.tensor)), TypeName(computed));
}

// Plans out = f(self, other), broadcast. alpha may be NULL only if the operator does not have it.
aclnnStatus Elementwise(const char* op, const aclTensor* self, const aclTensor* other, const aclTensor* out,
                        std::initializer_list<aclDataType> types, const Binary& f, uint64_t* workspaceSize,
                        aclOpExecutor** executor, bool has_alpha = false, const aclScalar* alpha = nullptr) {
  return Plan(op, workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, b{"other", other}, o{"out", out};
    p.Inputs({a, b});
    if (has_alpha) p.NotNull("alpha", alpha);
    p.Outputs({o});
    for (const Argument& x : {a, b, o}) {
      p.Types(x, types);
      p.Rank(x, 0, 8);
    }
    const aclDataType type = Promoted(TypeOf(self), TypeOf(other));
    CheckConversion(p, type, o);
    std::vector<int64_t> dims;
    p.Require(Broadcast(DimsOf(self), DimsOf(other), &dims), ACLNN_ERR_PARAM_INVALID, "%s and %s cannot be broadcast",
              Dims(DimsOf(self)).c_str(), Dims(DimsOf(other)).c_str());
    p.HasDims(o, dims);
    const double factor = alpha ? alpha->value : 1;
    p.kernel = [f, type, factor](const std::vector<Tensor>& t) {
      std::vector<double> x = Load(Expanded(t[0], t[2].dims));
      const std::vector<double> y = Load(Expanded(t[1], t[2].dims));
      for (size_t i = 0; i < x.size(); ++i) x[i] = Rounded(f(x[i], factor * y[i]), type);
      Store(t[2], x);
    };
  });
}

// Plans out = f(self, other) for a scalar.
aclnnStatus WithScalar(const char* op, const aclTensor* self, const aclScalar* other, const aclTensor* out,
                       const Binary& f, uint64_t* workspaceSize, aclOpExecutor** executor, bool has_alpha = false,
                       const aclScalar* alpha = nullptr) {
  return Plan(op, workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, o{"out", out};
    p.Inputs({a});
    p.NotNull("other", other);
    if (has_alpha) p.NotNull("alpha", alpha);
    p.Outputs({o});
    for (const Argument& x : {a, o}) p.Types(x, kNumbers);
    p.Rank(a, 0, 8);
    p.SameDims(o, a);
    const aclDataType type = PromotedScalar(TypeOf(self), other->type);
    CheckConversion(p, type, o);
    const double value = other->value * (alpha ? alpha->value : 1);
    p.kernel = [f, type, value](const std::vector<Tensor>& t) {
      std::vector<double> x = Load(t[0]);
      for (double& v : x) v = Rounded(f(v, value), type);
      Store(t[1], x);
    };
  });
}

double Sum(double a, double b) { return a + b; }
double Difference(double a, double b) { return a - b; }
double Product(double a, double b) { return a * b; }
double Quotient(double a, double b) { return a / b; }

}  // namespace

extern "C" {

aclnnStatus aclnnAddGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha,
                                     aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Elementwise("aclnnAdd", self, other, out, kNumbers, Sum, workspaceSize, executor, true, alpha);
}

aclnnStatus aclnnInplaceAddGetWorkspaceSize(const aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha,
                                            uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Elementwise("aclnnInplaceAdd", selfRef, other, selfRef, kNumbers, Sum, workspaceSize, executor, true, alpha);
}

aclnnStatus aclnnSubGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha,
                                     aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Elementwise("aclnnSub", self, other, out, kNumbers, Difference, workspaceSize, executor, true, alpha);
}

aclnnStatus aclnnMulGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out,
                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Elementwise("aclnnMul", self, other, out, kNumbers, Product, workspaceSize, executor);
}

aclnnStatus aclnnInplaceMulGetWorkspaceSize(aclTensor* selfRef, const aclTensor* other, uint64_t* workspaceSize,
                                            aclOpExecutor** executor) {
  return Elementwise("aclnnInplaceMul", selfRef, other, selfRef, kNumbers, Product, workspaceSize, executor);
}

aclnnStatus aclnnDivGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out,
                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Elementwise("aclnnDiv", self, other, out, kFloats, Quotient, workspaceSize, executor);
}

aclnnStatus aclnnAddsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, const aclScalar* alpha,
                                      aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return WithScalar("aclnnAdds", self, other, out, Sum, workspaceSize, executor, true, alpha);
}

aclnnStatus aclnnMulsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out,
                                      uint64_t* workspaceSize, aclOpExecutor** executor) {
  return WithScalar("aclnnMuls", self, other, out, Product, workspaceSize, executor);
}

aclnnStatus aclnnSqrtGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  return Plan("aclnnSqrt", workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, o{"out", out};
    p.Inputs({a});
    p.Outputs({o});
    p.Types(a, kNumbers);
    p.Types(o, kFloats);
    p.Rank(a, 0, 8);
    p.SameDims(o, a);
    p.kernel = [](const std::vector<Tensor>& t) {
      std::vector<double> x = Load(t[0]);
      for (double& v : x) v = std::sqrt(v);
      Store(t[1], x);
    };
  });
}

aclnnStatus aclnnClampGetWorkspaceSize(const aclTensor* self, const aclScalar* clipValueMin,
                                       const aclScalar* clipValueMax, aclTensor* out, uint64_t* workspaceSize,
                                       aclOpExecutor** executor) {
  return Plan("aclnnClamp", workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, o{"out", out};
    p.Inputs({a});
    if (!clipValueMin) p.NotNull("clipValueMin and clipValueMax", clipValueMax);
    p.Outputs({o});
    for (const Argument& x : {a, o}) {
      p.Types(x, kNumbers);
      p.Require(TypeOf(x.tensor) != ACL_BOOL, ACLNN_ERR_PARAM_INVALID, "%s is of BOOL", x.name);
    }
    p.Rank(a, 1, 8);
    p.SameDims(o, a);
    // The limits are rounded to the type that they limit.
    const double least = clipValueMin ? Rounded(clipValueMin->value, TypeOf(self)) : -INFINITY;
    const double most = clipValueMax ? Rounded(clipValueMax->value, TypeOf(self)) : INFINITY;
    p.kernel = [least, most](const std::vector<Tensor>& t) {
      std::vector<double> x = Load(t[0]);
      for (double& v : x) v = v < least ? least : v > most ? most : v;
      Store(t[1], x);
    };
  });
}

aclnnStatus aclnnCastGetWorkspaceSize(const aclTensor* self, const aclDataType dtype, aclTensor* out,
                                      uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan("aclnnCast", workspaceSize, executor, [&](Planner& p) {
    const Argument a{"self", self}, o{"out", out};
    p.Inputs({a});
    p.Outputs({o});
    for (const Argument& x : {a, o}) p.Types(x, kAll);
    p.Rank(a, 0, 8);
    p.Require(TypeOf(out) == dtype, ACLNN_ERR_PARAM_INVALID, "out is of %s, dtype is %s", TypeName(TypeOf(out)),
              TypeName(dtype));
    p.SameDims(o, a);
    if (TypeOf(self) == ACL_BOOL) p.Contiguous(a);
    p.kernel = [](const std::vector<Tensor>& t) { Store(t[1], Load(t[0])); };
  });
}

aclnnStatus aclnnInplaceCopyGetWorkspaceSize(aclTensor* selfRef, const aclTensor* src, uint64_t* workspaceSize,
                                             aclOpExecutor** executor) {
  return Plan("aclnnInplaceCopy", workspaceSize, executor, [&](Planner& p) {
    const Argument s{"selfRef", selfRef}, a{"src", src};
    p.Outputs({s});
    p.Inputs({a});
    for (const Argument& x : {s, a}) {
      p.Types(x, kAll);
      p.Rank(x, 1, 8);
    }
    std::vector<int64_t> dims;
    p.Require(Broadcast(DimsOf(selfRef), DimsOf(src), &dims) && dims == DimsOf(selfRef), ACLNN_ERR_PARAM_INVALID,
              "src of shape %s cannot be broadcast to %s", Dims(DimsOf(src)).c_str(), Dims(DimsOf(selfRef)).c_str());
    p.kernel = [](const std::vector<Tensor>& t) { Store(t[0], Load(Expanded(t[1], t[0].dims))); };
  });
}

aclnnStatus aclnnInplaceOneGetWorkspaceSize(const aclTensor* selfRef, uint64_t* workspaceSize,
                                            aclOpExecutor** executor) {
  return Plan("aclnnInplaceOne", workspaceSize, executor, [&](Planner& p) {
    const Argument s{"selfRef", selfRef};
    p.Outputs({s});
    p.Types(s, kNumbers);
    p.Rank(s, 0, 8);
    p.kernel = [](const std::vector<Tensor>& t) { Store(t[0], std::vector<double>(t[0].Size(), 1)); };
  });
}

aclnnStatus aclnnInplaceMaskedFillScalarGetWorkspaceSize(aclTensor* selfRef, const aclTensor* mask,
                                                         const aclScalar* value, uint64_t* workspaceSize,
                                                         aclOpExecutor** executor) {
  return Plan("aclnnInplaceMaskedFillScalar", workspaceSize, executor, [&](Planner& p) {
    const Argument s{"selfRef", selfRef}, m{"mask", mask};
    p.Outputs({s});
    p.Inputs({m});
    p.NotNull("value", value);
    p.Types(s, {ACL_BOOL, ACL_INT8, ACL_INT32, ACL_INT64, ACL_FLOAT, ACL_FLOAT16, ACL_BF16});
    p.Types(m, {ACL_BOOL});
    std::vector<int64_t> dims;
    p.Require(Broadcast(DimsOf(selfRef), DimsOf(mask), &dims) && dims == DimsOf(selfRef), ACLNN_ERR_PARAM_INVALID,
              "mask of shape %s cannot be broadcast to %s", Dims(DimsOf(mask)).c_str(), Dims(DimsOf(selfRef)).c_str());
    p.kernel = [fill = value->value](const std::vector<Tensor>& t) {
      std::vector<double> x = Load(t[0]);
      const std::vector<double> masked = Load(Expanded(t[1], t[0].dims));
      for (size_t i = 0; i < x.size(); ++i) x[i] = masked[i] ? fill : x[i];
      Store(t[0], x);
    };
  });
}
}

SECOND_PHASE(aclnnAdd)
SECOND_PHASE(aclnnInplaceAdd)
SECOND_PHASE(aclnnSub)
SECOND_PHASE(aclnnMul)
SECOND_PHASE(aclnnInplaceMul)
SECOND_PHASE(aclnnDiv)
SECOND_PHASE(aclnnAdds)
SECOND_PHASE(aclnnMuls)
SECOND_PHASE(aclnnSqrt)
SECOND_PHASE(aclnnClamp)
SECOND_PHASE(aclnnCast)
SECOND_PHASE(aclnnInplaceCopy)
SECOND_PHASE(aclnnInplaceOne)
SECOND_PHASE(aclnnInplaceMaskedFillScalar)
