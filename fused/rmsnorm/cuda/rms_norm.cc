// RMSNorm and AddRMSNorm on CUDA.

#include <type_traits>

#include "cuda/backends.h"

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
  MojoType x_type = kMojoFloat32, scale_type = kMojoFloat32;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

template <bool kAdd>
OrtStatus* NormKernel<kAdd>::Init(const KernelInit& init) {
  x_type = ToMojoType(init.types.inputs[0]);
  scale_type = ToMojoType(init.types.inputs[kScale<kAdd>]);
  return ReadAttributes(init, &attributes);
}

template <bool kAdd>
OrtStatus* NormKernel<kAdd>::Compute(const Api& api, OrtKernelContext* context) const {
  Call<kAdd> call(api, context, attributes);
  MojoRMSNormArgs args{};
  cudaStream_t stream;
  if (OrtStatus* s = call.Read()) return s;
  const Shape &x = call.shapes[0], &scale = call.shapes[kScale<kAdd>];
  args.rows = x.Product(0, x.rank - scale.rank);
  args.width = scale.Count();
  args.x = call.data[0];
  args.scale = call.data[kScale<kAdd>];
  if (OrtStatus* s = call.Make(0, &args.y)) return s;
  if (kAdd) {
    args.residual = call.data[kAddRMSNormResidual];
    if (OrtStatus* s = call.Make(1, &args.sum)) return s;
  }
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (args.rows == 0 || args.width == 0) return nullptr;
  args.epsilon = attributes.epsilon;
  args.scale_after_cast = attributes.scale_after_cast;
  args.x_type = x_type;
  args.scale_type = scale_type;
  return Launched(api, kAdd ? kAddRMSNorm : kRMSNorm,
                  kAdd ? MojoCudaAddRMSNorm(&args, stream) : MojoCudaRMSNorm(&args, stream));
}

}  // namespace

const Backend kCUDARMSNorm = MakeBackend<NormKernel<false>>(kCUDAProvider, MayInPlace<0, 0>);
// The pairs that MojoRMSNormArgs allows: never Y over X's memory if sum takes it.
const Backend kCUDAAddRMSNorm = MakeBackend<NormKernel<true>>(kCUDAProvider, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
