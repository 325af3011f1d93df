// aclnn calls of the transformer library: rotary position embedding.
#include <cstring>

#include "opbase.h"

using namespace cann_emulation;

namespace {

constexpr std::initializer_list<aclDataType> kFloats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
constexpr int64_t kCores = 48;  // of the largest chip of the series: the strictest reading of a limit by cores

// y = x * cos + rotate(x) * sin along the last axis, cos and sin broadcast.
void Rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved, const Tensor& y) {
  const std::vector<double> a = Load(x), c = Load(Expanded(cos, x.dims)), s = Load(Expanded(sin, x.dims));
  const size_t width = x.Dim(-1), half = width / 2;
  std::vector<double> out(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t at = i % width, row = i - at;
    const bool first = interleaved ? at % 2 == 0 : at < half;
    const size_t partner = interleaved ? at ^ 1 : (at + half) % width;
    out[i] = a[i] * c[i] + (first ? -a[row + partner] : a[row + partner]) * s[i];
  }
  Store(y, out);
}

// Whether cos has one of the supported shapes for x, read as if it were laid out with batch, heads and sequence at
// these axes, and the limits of that reading hold.
bool Fits(const std::vector<int64_t>& x, const std::vector<int64_t>& cos, int batch, int heads, int sequence,
          bool interleaved, size_t size) {
  const int64_t b = x[batch], n = x[heads], s = x[sequence], d = x[3];
  if (cos[sequence] != s) return false;
  const bool shared = cos[batch] == 1 && cos[heads] == 1, by_batch = cos[batch] == b && cos[heads] == 1,
             full = cos[batch] == b && cos[heads] == n;
  if (interleaved) return shared && b * n < 1000;
  if (!(shared || by_batch || full) || b >= 1000 || n >= 1000) return false;
  const bool bnsd = batch == 0 && heads == 1;
  if (Is310P()) {
    const int64_t jump = (bnsd ? 0 : batch == 0 ? n - 1 : b * n - 1) * d * int64_t(size) / 32;
    return bnsd ? b * n <= s * 8 : jump < 65535;
  }
  if (!bnsd) return true;
  return d / 2 * size % 32 == 0 ? b * n <= s * 8 : d >= 80 || b * n * 2 <= (s + kCores - 1) / kCores;
}

}  // namespace

extern "C" {

aclnnStatus aclnnRotaryPositionEmbeddingGetWorkspaceSize(const aclTensor* x, const aclTensor* cos, const aclTensor* sin,
                                                         int64_t mode, aclTensor* out, uint64_t* workspaceSize,
                                                         aclOpExecutor** executor) {
  return Plan("aclnnRotaryPositionEmbedding", workspaceSize, executor, [&](Planner& p) {
    const Argument ax{"x", x}, ac{"cos", cos}, as{"sin", sin}, ao{"out", out};
    p.Inputs({ax, ac, as});
    p.Outputs({ao});
    p.Types(ax, kFloats);
    for (const Argument& a : {ac, as, ao}) p.SameType(a, ax);
    for (const Argument& a : {ax, ac, as, ao}) p.Rank(a, 4, 4);
    p.Contiguous(ao);
    const int tiling = ACLNN_ERR_INNER_TILING_ERROR;
    p.Require(mode == 0 || (mode == 1 && !Is310P()), tiling, "mode %lld is not supported on %s", (long long)mode,
              SocName().c_str());
    p.SameDims(ao, ax, tiling);
    p.SameDims(as, ac, tiling);
    const std::vector<int64_t>&dx = DimsOf(x), &dc = DimsOf(cos);
    const int64_t d = dx[3];
    p.Require(dc[3] == d, tiling, "cos has %lld channels, x %lld", (long long)dc[3], (long long)d);
    p.Require(Is310P() ? d <= 128 && d % 32 == 0 : d < 896 && d % 2 == 0, tiling,
              "%lld channels are not supported on %s", (long long)d, SocName().c_str());
    const size_t size = aclDataTypeSize(TypeOf(x));
    p.Require(x->tensor.Size() == 0 || Fits(dx, dc, 0, 1, 2, mode, size) || Fits(dx, dc, 0, 2, 1, mode, size) ||
                  Fits(dx, dc, 1, 2, 0, mode, size),
              tiling, "x of shape %s and cos of shape %s are no supported pair in BNSD, BSND or SBND for mode %lld",
              Dims(dx).c_str(), Dims(dc).c_str(), (long long)mode);
    p.kernel = [mode](const std::vector<Tensor>& t) { Rotate(t[0], t[1], t[2], mode == 1, t[3]); };
  });
}

// The emulated chips support only BSND and the half mode; of the documented head sizes, all releases support only 128.
aclnnStatus aclnnApplyRotaryPosEmbV2GetWorkspaceSize(aclTensor* queryRef, aclTensor* keyRef, const aclTensor* cos,
                                                     const aclTensor* sin, int64_t layout, char* rotaryMode,
                                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Plan("aclnnApplyRotaryPosEmbV2", workspaceSize, executor, [&](Planner& p) {
    const Argument q{"queryRef", queryRef}, k{"keyRef", keyRef}, c{"cos", cos}, s{"sin", sin};
    p.Outputs({q, k});
    p.Inputs({c, s});
    p.NotNull("rotaryMode", rotaryMode);
    p.Types(q, kFloats);
    for (const Argument& a : {k, c, s}) p.SameType(a, q);
    for (const Argument& a : {q, k, c, s}) {
      p.Rank(a, 4, 4);
      p.Require(a.tensor->tensor.Size() > 0, ACLNN_ERR_PARAM_INVALID, "%s is empty", a.name);
      p.Require(a.tensor->tensor.Dim(-1) == 128, ACLNN_ERR_PARAM_INVALID, "%s has %lld channels, not 128", a.name,
                (long long)a.tensor->tensor.Dim(-1));
      for (int axis : {0, 1}) {
        p.Require(DimsOf(a.tensor)[axis] == DimsOf(queryRef)[axis], ACLNN_ERR_PARAM_INVALID,
                  "%s has shape %s, queryRef %s", a.name, Dims(DimsOf(a.tensor)).c_str(),
                  Dims(DimsOf(queryRef)).c_str());
      }
    }
    for (const Argument& a : {c, s}) {
      p.Require(DimsOf(a.tensor)[2] == 1, ACLNN_ERR_PARAM_INVALID, "%s has %lld heads, not 1", a.name,
                (long long)DimsOf(a.tensor)[2]);
    }
    p.Require(layout == 1, ACLNN_ERR_PARAM_INVALID, "layout is %lld, not 1", (long long)layout);
    p.Require(strcmp(rotaryMode, "half") == 0, ACLNN_ERR_PARAM_INVALID, "rotaryMode is %s, not half", rotaryMode);
    p.kernel = [](const std::vector<Tensor>& t) {
      Rotate(t[0], t[2], t[3], false, t[0]);
      Rotate(t[1], t[2], t[3], false, t[1]);
    };
  });
}
}

SECOND_PHASE(aclnnRotaryPositionEmbedding)
SECOND_PHASE(aclnnApplyRotaryPosEmbV2)
