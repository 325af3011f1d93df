// PagedAttention of 16-bit numbers on tensor cores.
#include "attention/cuda/paged_mma.cuh"

namespace mojo {
namespace paged {

bool MmaTakes(const MojoPagedAttentionArgs& a) {
  constexpr size_t kMostInGrid = 65535;
  return a.type != kMojoFloat32 && a.width % 8 == 0 && a.value_width % 8 == 0 && a.width <= 256 &&
         a.sequences <= kMostInGrid && a.heads * kFewRows / 8 * DivideUp(a.value_width, 64) <= kMostInGrid &&
         AllAligned(16, a.q, a.key_cache_out, a.value_cache_out, a.y);
}

cudaError_t AttendMma(const Params& p, cudaStream_t stream) {
  return p.type == kMojoFloat16 ? Run<Half, Half>(p, stream) : Run<BFloat, BFloat>(p, stream);
}

}  // namespace paged
}  // namespace mojo
