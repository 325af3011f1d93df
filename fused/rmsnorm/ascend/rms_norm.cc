// RMSNorm and AddRMSNorm by CANN's calls of the same names.
//
// The documentation does not say when the calls round intermediate 16-bit values, so scale_after_cast makes no
// difference here: results are within a rounding of the op's.
#include <type_traits>

#include "ascend/backends.h"

namespace mojo {

void Norm(Run* run, const View& x, const View& gamma, float epsilon, const View& y) {
  if (y.type != x.type) {
    const View wide = run->Memory(x.type, x.dims);
    Norm(run, x, run->Cast(gamma, x.type), epsilon, wide);
    return run->CastTo(y, wide);
  }
  const View rstd = run->Memory(ACL_FLOAT, {x.dims.at[0], 1});  // the reciprocal root, which no op has
  run->Do(TheCann().RmsNorm, run->Tensor(x), run->Tensor(gamma), static_cast<double>(epsilon), run->Tensor(y),
          run->Tensor(rstd));
}

OrtStatus* FindNorm(const KernelInit& init) { return Find(init, TheCann().RmsNorm, TheCann().Cast); }

namespace {

template <bool kAdd>
using Call = std::conditional_t<kAdd, AddRMSNormCall, RMSNormCall>;

template <bool kAdd>
constexpr size_t kScale = kAdd ? size_t{kAddRMSNormScale} : size_t{kRMSNormScale};

// AddNorm writes sum and its norm. AddRmsNorm needs a scale of X's type. For a wider scale the sum is made first, and
// for a narrower one the result is rounded last.
void AddNorm(Run* run, const View& x, const View& residual, const View& gamma, float epsilon, const View& y,
             const View& sum) {
  const Cann& cann = TheCann();
  if (x.type != ACL_FLOAT && gamma.type == ACL_FLOAT) {
    run->Do(cann.Add, run->Tensor(x), run->Tensor(residual), run->Number(1), run->Tensor(sum));
    return Norm(run, sum, gamma, epsilon, y);
  }
  const View rstd = run->Memory(ACL_FLOAT, {x.dims.at[0], 1});
  const View wide = y.type == x.type ? y : run->Memory(x.type, x.dims);
  run->Do(cann.AddRmsNorm, run->Tensor(x), run->Tensor(residual), run->Tensor(run->Cast(gamma, x.type)),
          static_cast<double>(epsilon), run->Tensor(wide), run->Tensor(rstd), run->Tensor(sum));
  if (y.type != x.type) run->CastTo(y, wide);
}

template <bool kAdd>
struct NormKernel : Node<RMSNormAttributes> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = Node::Init(init)) return s;
    if (OrtStatus* s = FindNorm(init)) return s;
    return kAdd ? Find(init, TheCann().AddRmsNorm, TheCann().Add) : nullptr;
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    const OpDef& def = kAdd ? kAddRMSNorm : kRMSNorm;
    Call<kAdd> call(api, context, attributes);
    void *y_data, *sum_data = nullptr;
    if (OrtStatus* s = call.Read()) return s;
    const Shape &x = call.shapes[0], &scale = call.shapes[kScale<kAdd>];
    const size_t rows = x.Product(0, x.rank - scale.rank), width = scale.Count();
    if (OrtStatus* s = call.Make(0, &y_data)) return s;
    if (kAdd) {
      if (OrtStatus* s = call.Make(1, &sum_data)) return s;
    }
    if (rows == 0 || width == 0) return nullptr;
    const Dims dims{static_cast<int64_t>(rows), static_cast<int64_t>(width)};
    const aclDataType type = input(0);
    Run run(context, def, memory);
    const View in(call.data[0], type, dims), gamma(call.data[kScale<kAdd>], input(kScale<kAdd>), {dims.at[1]}),
        y(y_data, output(0), dims);
    if (kAdd) {
      const View sum = sum_data != nullptr ? View(sum_data, type, dims) : run.Memory(type, dims);
      AddNorm(&run, in, View(call.data[kAddRMSNormResidual], type, dims), gamma, attributes.epsilon, y, sum);
    } else {
      Norm(&run, in, gamma, attributes.epsilon, y);
    }
    return run.Finish();
  }
};

}  // namespace

// Not in place: the documentation does not say that an output may overlap an input.
const Backend kCANNRMSNorm = MakeBackend<NormKernel<false>>(kCANNProvider);
const Backend kCANNAddRMSNorm = MakeBackend<NormKernel<true>>(kCANNProvider);

}  // namespace mojo
