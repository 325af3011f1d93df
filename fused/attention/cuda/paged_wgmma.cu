// PagedAttention of sequences of many rows on compute capability 9.0: Attention's warpgroups, with tensor map copies of
// the blocks of the pool; see paged_warpgroup.cuh.
#include <algorithm>
#include <numeric>

#include "attention/cuda/paged_warpgroup_codes.cuh"
#include "cuda/tensor_map.h"

namespace mojo {
namespace paged {
namespace {

using namespace warpgroup;

// WarpGroupPrompts. Registers: 168; a thread that multiplies has 232, or 216 with kCodes. Shared memory: 160 to 224 KB,
// see Form.
template <class T, class F, bool kCodes>
__global__ void __launch_bounds__(kThreads, 1)
    WarpGroupPrompts(const __grid_constant__ Params p, const __grid_constant__ TileWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  if constexpr (kCodes) {
    RunBlock<T, F, PromptTile<F>, 216, 72>(p, work, memory, [&] {
      if (p.float8) {
        LoadPrompts<F>(p, work, memory, WidenBoxes<T, E4M3Code, F>(p, memory));
      } else {
        LoadPrompts<F>(p, work, memory, WidenBoxes<T, Int8Code, F>(p, memory));
      }
    });
  } else {
    RunBlock<T, F, PromptTile<F>>(p, work, memory,
                                  [&] { LoadPrompts<F>(p, work, memory, CopyBoxes<F>{work, SharedAddress(memory)}); });
  }
#endif
}

// MakePoolMap makes the map of a pool, whose boxes are rows of 64 numbers of a head.
cudaError_t MakePoolMap(CUtensorMap* map, const void* pool, const Params& p, size_t width, int rows) {
  const Extent extents[] = {{width, 0, 64},
                            {p.blocks * p.block, p.key_heads * width * 2, static_cast<unsigned>(rows)},
                            {p.key_heads, width * 2, 1}};
  return MakeTensorMap(map, pool, extents, 3);
}

// MakeRowMap makes the map of q. A box is 64 numbers of members of the heads that share keys, of some tokens.
cudaError_t MakeRowMap(CUtensorMap* map, const Params& p, const Work& work) {
  const size_t head = p.width * 2, group = p.group;
  const Extent extents[] = {{p.width, 0, 64},
                            {group, p.cyclic ? head * p.key_heads : head, static_cast<unsigned>(work.members)},
                            {p.tokens, head * p.heads, static_cast<unsigned>(work.queries)},
                            {p.key_heads, p.cyclic ? head : head * group, 1},
                            {1, 16, 1}};
  return MakeTensorMap(map, p.q, extents, 5);
}

template <class T, class F, bool kCodes>
cudaError_t LaunchForm(const Params& p, cudaStream_t stream) {
  TileWork work = {};
  work.Divide(p.group, p.key_heads, p.scale, p.softcap);
  if (cudaError_t e = MakeRowMap(&work.q, p, work)) return e;
  if (kCodes) {
    work.rows = kWidenedRows;
    work.k = work.v = work.q;  // not used
  } else {
    work.rows = std::gcd(static_cast<int>(p.block), F::kKeys);
    if (cudaError_t e = MakePoolMap(&work.k, p.key_cache_out, p, p.width, work.rows)) return e;
    if (cudaError_t e = MakePoolMap(&work.v, p.value_cache_out, p, p.value_width, work.rows)) return e;
  }
  constexpr int kBytes = kRingsAt<F> + (kCodes ? 4 * kRingBytes<F> : 0);
  static_assert(kBytes <= 227 * 1024, "shared memory");
  const auto kernel = WarpGroupPrompts<T, F, kCodes>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes)) return e;
  // No sequence has both many tokens and fewer than few + 1.
  const size_t many = std::min(p.sequences, p.tokens / (p.few + 1));
  const size_t tiles = (p.tokens / work.queries + many) * work.columns;
  const int blocks = static_cast<int>(std::min<size_t>(tiles, TheDevice().multiprocessors));
  return Launch(kernel, static_cast<unsigned>(blocks), kThreads, kBytes, stream, p, work);
}

template <class T>
cudaError_t LaunchType(const Params& p, bool codes, cudaStream_t stream) {
  if (codes) return p.width == 64 ? LaunchForm<T, Form64, true>(p, stream) : LaunchForm<T, Form128, true>(p, stream);
  return OfForm(p.width, [&](auto form) { return LaunchForm<T, decltype(form), false>(p, stream); });
}

// HasKernels reports whether the device runs the kernels, which are empty unless compiled for capability 9.0.
bool HasKernels() {
  if (TheDevice().capability != 90) return false;
  static const bool has = HasHopperCode(WarpGroupPrompts<BFloat, Form128, false>);
  return has;
}

}  // namespace

// A box of rows is at least the 8 rows of the swizzle. Maxima are taken before scores are multiplied by scale.
bool PromptsWgmmaTakes(const Params& p, bool codes) {
  return HasForm(p.width, p.value_width) && (!codes || p.width <= 128) && p.scale > 0 && p.block % 8 == 0 &&
         p.blocks * p.block < size_t{1} << 31 && HasKernels();
}

cudaError_t PromptsWgmma(const Params& p, bool codes, cudaStream_t stream) {
  return p.type == kMojoBFloat16 ? LaunchType<BFloat>(p, codes, stream) : LaunchType<Half>(p, codes, stream);
}

}  // namespace paged
}  // namespace mojo
