// aclnnGroupedMatmul, for rows grouped by expert: no quantization, one tensor of rows, one result.
#include "opbase.h"

using namespace cann_emulation;

namespace {

struct Lists {
  const aclTensorList *x, *weight, *bias;
  const aclTensor *groups;
  const aclTensorList *out;
  int64_t split, group_type, list_type, act;
};

// Tensors of the kernel: x, group list, result, then weight and bias, if present.
struct Shape {
  size_t weights, biases;
  int64_t list_type;
};

Tensor Part(const Tensor &whole, int64_t i) {
  Tensor t = whole;
  t.offset += i * t.strides[0];
  t.dims.erase(t.dims.begin());
  t.strides.erase(t.strides.begin());
  return t;
}

void Run(const std::vector<Tensor> &t, const Shape &shape) {
  const std::vector<double> x = Load(t[0]), groups = Load(t[1]);
  const int64_t rows = t[0].dims[0], k = t[0].dims[1], n = t[2].dims[1];
  int64_t row = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const int64_t end = shape.list_type ? row + int64_t(groups[g]) : int64_t(groups[g]);
    if (end < row || end > rows) {
      throw Failure{ACL_ERROR_RT_AICORE_EXCEPTION,
                    Text("group %zu ends at row %lld, of %lld", g, (long long)end, (long long)rows)};
    }
    const Tensor &w = t[3 + (shape.weights == 1 ? 0 : g)];
    const std::vector<double> weight = end > row ? Load(w.dims.size() == 3 ? Part(w, g) : w) : std::vector<double>();
    std::vector<double> bias(n);
    if (shape.biases) {
      const Tensor &b = t[3 + shape.weights + (shape.biases == 1 ? 0 : g)];
      bias = Load(b.dims.size() == 2 ? Part(b, g) : b);
    }
    for (; row < end; ++row) {
      std::vector<double> y = bias;
      for (int64_t p = 0; p < k; ++p) {
        for (int64_t j = 0; j < n; ++j) y[j] += x[row * k + p] * weight[p * n + j];
      }
      Store(Part(t[2], row), y);
    }
  }  // rows after the last group do not change
}

// A weight is row-major, or the transposed view of a row-major one.
bool IsPlainOrTransposed(const Tensor &w) {
  std::vector<int64_t> axes(w.dims.size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = i;
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return IsContiguous(w) || IsContiguous(Permuted(w, axes));
}

void Check(Planner &p, const Lists &l) {
  p.NotNull("x", l.x);
  p.NotNull("weight", l.weight);
  p.NotNull("out", l.out);
  p.Require(l.group_type == 0 && (l.split == 2 || l.split == 3), ACLNN_ERR_INNER,
            "the emulation has groupType 0 with splitItem 2 or 3, not %lld with %lld", (long long)l.group_type,
            (long long)l.split);
  p.Require(l.x->tensors.size() == 1 && l.out->tensors.size() == 1, ACLNN_ERR_PARAM_INVALID,
            "%zu tensors in x, %zu in out, not 1", l.x->tensors.size(), l.out->tensors.size());
  p.Require(l.list_type == 0 || l.list_type == 1, ACLNN_ERR_PARAM_INVALID, "groupListType is %lld",
            (long long)l.list_type);
  p.Require(l.act == 0, ACLNN_ERR_PARAM_INVALID, "actType is %lld, not 0", (long long)l.act);
  const Argument x{"x", l.x->tensors[0]}, out{"out", l.out->tensors[0]}, groups{"groupListOptional", l.groups};
  p.Inputs({x, groups});
  p.Outputs({out});
  p.InputList("weight", l.weight);
  if (l.bias) p.InputList("biasOptional", l.bias);
  p.Types(x, {ACL_FLOAT, ACL_FLOAT16, ACL_BF16});
  if (Is310P()) p.Types(x, {ACL_FLOAT16});
  p.SameType(out, x);
  p.Types(groups, {ACL_INT64});
  p.Rank(groups, 1, 1);
  p.Contiguous(groups);
  p.Rank(x, 2, 2);
  p.Contiguous(x);
  p.Contiguous(out);
  const size_t many = l.weight->tensors.size();
  const int64_t g = DimsOf(l.groups)[0], m = DimsOf(x.tensor)[0], k = DimsOf(x.tensor)[1];
  p.Require(many == 1 ? g <= 1024 : g <= 128 && int64_t(many) == g, ACLNN_ERR_PARAM_INVALID,
            "%lld groups for %zu weights", (long long)g, many);
  int64_t n = -1;
  for (const aclTensor *w : l.weight->tensors) {
    const Argument a{"weight", w};
    p.SameType(a, x);
    p.Rank(a, many == 1 ? 3 : 2, many == 1 ? 3 : 2);
    const int64_t columns = w->tensor.Dim(-1);
    p.Require(IsPlainOrTransposed(w->tensor), ACLNN_ERR_PARAM_INVALID, "weight has strides %s for shape %s",
              Dims(w->tensor.strides).c_str(), Dims(DimsOf(w)).c_str());
    p.Require(w->tensor.Dim(-2) == k && (n < 0 || columns == n) && (many > 1 || DimsOf(w)[0] == g),
              ACLNN_ERR_PARAM_INVALID, "weight has shape %s for x of %s and %lld groups", Dims(DimsOf(w)).c_str(),
              Dims(DimsOf(x.tensor)).c_str(), (long long)g);
    n = columns;
  }
  p.Require(k < 65536 && n < 65536, ACLNN_ERR_PARAM_INVALID, "a last axis of %lld or %lld is not supported",
            (long long)k, (long long)n);
  p.HasDims(out, {m, n});
  const size_t biases = l.bias ? l.bias->tensors.size() : 0;
  p.Require(!biases || biases == many, ACLNN_ERR_PARAM_INVALID, "%zu biases for %zu weights", biases, many);
  for (size_t i = 0; i < biases; ++i) {
    const Argument a{"biasOptional", l.bias->tensors[i]};
    p.Types(a, {TypeOf(x.tensor) == ACL_FLOAT16 ? ACL_FLOAT16 : ACL_FLOAT});
    p.Contiguous(a);
    p.HasDims(a, many == 1 ? std::vector<int64_t>{g, n} : std::vector<int64_t>{n});
  }
  const Shape shape{many, biases, l.list_type};
  p.kernel = [shape](const std::vector<Tensor> &t) { Run(t, shape); };
}

}  // namespace

// The arguments that all versions have before and after the added ones.
#define FIRST                                                                                                          \
  const aclTensorList *x, const aclTensorList *weight, const aclTensorList *biasOptional,                              \
      const aclTensorList *scaleOptional, const aclTensorList *offsetOptional,                                         \
      const aclTensorList *antiquantScaleOptional, const aclTensorList *antiquantOffsetOptional,                       \
      const aclTensorList *perTokenScaleOptional, const aclTensor *groupListOptional,                                  \
      const aclTensorList *activationInputOptional, const aclTensorList *activationQuantScaleOptional,                 \
      const aclTensorList *activationQuantOffsetOptional, int64_t splitItem, int64_t groupType, int64_t groupListType, \
      int64_t actType
#define LAST                                                                                                \
  aclTensorList *out, aclTensorList *activationFeatureOutOptional, aclTensorList *dynQuantScaleOutOptional, \
      uint64_t *workspaceSize, aclOpExecutor **executor
#define PLAN(op)                                                                                                    \
  return Plan(op, workspaceSize, executor, [&](Planner &p) {                                                        \
    p.Absent("scaleOptional", scaleOptional);                                                                       \
    p.Absent("offsetOptional", offsetOptional);                                                                     \
    p.Absent("antiquantScaleOptional", antiquantScaleOptional);                                                     \
    p.Absent("antiquantOffsetOptional", antiquantOffsetOptional);                                                   \
    p.Absent("perTokenScaleOptional", perTokenScaleOptional);                                                       \
    p.Absent("activationInputOptional", activationInputOptional);                                                   \
    p.Absent("activationQuantScaleOptional", activationQuantScaleOptional);                                         \
    p.Absent("activationQuantOffsetOptional", activationQuantOffsetOptional);                                       \
    p.Absent("activationFeatureOutOptional", activationFeatureOutOptional);                                         \
    p.Absent("dynQuantScaleOutOptional", dynQuantScaleOutOptional);                                                 \
    Check(p, Lists{x, weight, biasOptional, groupListOptional, out, splitItem, groupType, groupListType, actType}); \
  })

extern "C" {

aclnnStatus aclnnGroupedMatmulV4GetWorkspaceSize(FIRST, LAST) { PLAN("aclnnGroupedMatmulV4"); }

aclnnStatus aclnnGroupedMatmulV5GetWorkspaceSize(FIRST, aclIntArray *, LAST) { PLAN("aclnnGroupedMatmulV5"); }
}

SECOND_PHASE(aclnnGroupedMatmulV4)
SECOND_PHASE(aclnnGroupedMatmulV5)
