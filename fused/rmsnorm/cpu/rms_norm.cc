// RMSNorm and AddRMSNorm on the CPU.

#include <type_traits>

#include "common/attributes.h"
#include "cpu/backends.h"
#include "rmsnorm/cpu/prepared_scale.h"

namespace mojo {
namespace {

template <bool kAdd>
using Call = std::conditional_t<kAdd, AddRMSNormCall, RMSNormCall>;

template <bool kAdd>
constexpr size_t kScale = kAdd ? size_t{kAddRMSNormScale} : size_t{kRMSNormScale};

// NormKernel is the state of one node.
template <bool kAdd>
struct NormKernel {
  RMSNormAttributes attributes{};
  NormFn run = nullptr;
  PreparedScale prepared;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

template <bool kAdd>
OrtStatus* NormKernel<kAdd>::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  NormKey key;
  key.x = ToElementType(init.types.inputs[0]);
  key.y = ToElementType(init.types.outputs[0]);
  key.scale_after_cast = attributes.scale_after_cast;
  key.add = kAdd;
  run = TheKernels()->norm(key);
  if (run == nullptr) {
    return Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
  }
  return prepared.Prepare(init, kScale<kAdd>);
}

template <bool kAdd>
OrtStatus* NormKernel<kAdd>::Compute(const Api& api, OrtKernelContext* context) const {
  Call<kAdd> call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  const Shape &x = call.shapes[0], &scale = call.shapes[kScale<kAdd>];
  const size_t rows = x.Product(0, x.rank - scale.rank), width = scale.Count();
  NormArgs args{};
  ScaleRoom room;
  if (OrtStatus* s = prepared.AsFloats(api, call.data[kScale<kAdd>], width, &room, &args.scale)) return s;
  if (OrtStatus* s = call.Make(0, &args.y)) return s;
  args.x = call.data[0];
  if (kAdd) {
    args.residual = call.data[kAddRMSNormResidual];
    if (OrtStatus* s = call.Make(1, &args.sum)) return s;
  }
  if (rows == 0 || width == 0) return nullptr;
  args.width = width;
  args.epsilon = attributes.epsilon;
  return RunInTasks(api, context, run, args, rows, width);
}

}  // namespace

const Backend kCPURMSNorm = MakeBackend<NormKernel<false>>(nullptr, MayInPlace<0, 0>);
// X's memory for sum and residual's for Y: sum, which the second pass reads, must never be Y's.
const Backend kCPUAddRMSNorm = MakeBackend<NormKernel<true>>(nullptr, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
