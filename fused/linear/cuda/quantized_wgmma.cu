// Products of quantized weights on compute capability 9.0: a persistent grouped GEMM with tensor maps and wgmma, whose
// weights are widened in registers (MXFP4 to bfloat16) or multiplied as they are (e4m3).
//
// quantized_load.cuh copies the operands, quantized_multiply.cuh multiplies, and quantized_store.cuh stores the sums.
// The floor is the greater of reading the weights of each chosen expert once and the multiply-adds of all choices.
#include <math.h>

#include "linear/cuda/quantized_multiply.cuh"
#include "linear/cuda/quantized_store.cuh"

namespace mojo {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// MultiplyPlaces multiplies and stores the loaded places until the loader marks the end.
template <bool kEightBits, int kTokens, QuantizedKind kKind>
__device__ __forceinline__ void MultiplyPlaces(const HopperCall& a, char* memory) {
  typedef StageLayout<kEightBits, kTokens> L;
  const uint32_t shared = SharedAddress(memory);
  const Span<L::kUnits> span(a);
  WaitForPrevious();
  Ring<L::kStages> ring;
  do {
    WaitForPhase(shared + L::kFullAt + ring.stage * 8, ring.parity);
    const Place place = reinterpret_cast<const Place*>(memory + L::kPlacesAt)[ring.stage];
    if (place.count == 0) return;
    // The stores need more data, which arrives during the multiplication.
    const int n = threadIdx.x % kGroup, group = threadIdx.x / kGroup;
    int2* const choices = reinterpret_cast<int2*>(memory + L::kChoicesAt) + group * kTokens;
    int2 own = make_int2(0, 0);
    if (kKind == kQuantizedOutputs && n < place.count) {
      own = make_int2(__ldcg(a.p.plan.choice + place.first + n),
                      __float_as_int(__ldcg(a.p.plan.weight + place.first + n)));
    }
    Sums<kEightBits, kTokens> sum;
    MultiplyPlace<kEightBits, kTokens, kTokens <= 32 || kEightBits ? 1 : 4>(a, span, place, shared, &ring, sum);
    if (a.split > 1) {
      AddUp<kEightBits, kTokens>(a.split, place.count, memory, sum);
      if (blockIdx.x % a.split != 0) return;
    }
    if constexpr (kKind == kQuantizedGateUp) {
      StoreActivated<kEightBits, kTokens>(a, place, memory, sum);
    } else {
      if (kKind == kQuantizedOutputs) {
        WaitForGroup<kGroup>(3 + group);
        if (n < kTokens) choices[n] = own;
        WaitForGroup<kGroup>(3 + group);
      }
      StoreProducts<kEightBits, kTokens, kKind>(a, place, choices, sum);
    }
  } while (a.split == 1);
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// MultiplyQuantized. Registers: 72 if three blocks run on a multiprocessor and 96 if two do; else 168, of which a
// thread that loads keeps 88 and one that multiplies has 208. Shared memory: see StageLayout.
template <bool kEightBits, int kTokens, QuantizedKind kKind>
__global__ void __launch_bounds__(StageLayout<kEightBits, kTokens>::kThreads, StageLayout<kEightBits, kTokens>::kBlocks)
    MultiplyQuantized(const __grid_constant__ HopperCall a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  typedef StageLayout<kEightBits, kTokens> L;
  if (threadIdx.x == 0) {
    PrefetchMap(&a.codes);
    if (!kEightBits) PrefetchMap(&a.scales);
    const uint32_t shared = SharedAddress(memory);
    for (int s = 0; s < L::kStages; ++s) {
      InitBarrier(shared + L::kFullAt + s * 8, L::kLoaders + 1);
      InitBarrier(shared + L::kFreeAt + s * 8, L::kMultipliers / 32);
    }
    ShowBarriers();
  }
  __syncthreads();
  if (a.split > 1) {
    // A cluster without a place ends here.
    WaitForPrevious();
    if (static_cast<int>(blockIdx.x) / a.split >= CountPlaces<kTokens>(a)) return;
  }
  if (threadIdx.x >= L::kMultipliers) {
    if constexpr (L::kLoaders == kGroup) GiveRegisters<L::kOperands == 1 ? 32 : 88>();
    LoadPlaces<kEightBits, kTokens, kKind>(a, memory);
    if (a.split > 1) {
      ReleaseToCluster();
      WaitForCluster();
    }
  } else {
    if constexpr (L::kLoaders == kGroup) TakeRegisters<L::kOperands == 1 ? 112 : 208>();
    MultiplyPlaces<kEightBits, kTokens, kKind>(a, memory);
  }
  // No block of a cluster ends while the first one reads its memory.
  if (a.split > 1) {
    ArriveAtCluster();
    WaitForCluster();
  }
#endif
}

// PrepareOperands: eight or 16 columns a thread. During the plan it runs at once, and one block waits, so that later
// launches come after the plan.
template <bool kEightBits>
__global__ __launch_bounds__(256) void Prepare(const __grid_constant__ QuantizedProduct p, Operands to, bool planned) {
  if (!planned || blockIdx.x == gridDim.x - 1) WaitForPrevious();
  LetNextStart();
  const size_t at = (static_cast<size_t>(blockIdx.x) * 256 + threadIdx.x) * (kEightBits ? 8 : 16);
  const bool is = at < p.rows * p.weights.k;
  if constexpr (kEightBits) {
    float v[8], greatest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v[i] = is ? Number(p.x, at + i, p.type) : 0;
      greatest = fmaxf(greatest, fabsf(v[i]));
    }
#pragma unroll
    for (int step = 1; step < 16; step *= 2) greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, step));
    if (!is) return;
    const float factor = FactorOfBlock(greatest);
    uint32_t two[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      two[i] = EightBits(v[4 * i] * factor, v[4 * i + 1] * factor) |
               static_cast<uint32_t>(EightBits(v[4 * i + 2] * factor, v[4 * i + 3] * factor)) << 16;
    }
    *reinterpret_cast<uint2*>(static_cast<char*>(to.numbers) + at) = make_uint2(two[0], two[1]);
    if (at % 128 == 0) to.steps[at / 128] = greatest / 448.0f;
  } else if (is) {
    const uint4* const from = reinterpret_cast<const uint4*>(static_cast<const BFloat*>(p.x) + at);
    uint4* const out = reinterpret_cast<uint4*>(static_cast<BFloat*>(to.numbers) + at);
    const uint4 a = from[0], b = from[1];
    out[0] = make_uint4(__byte_perm(a.x, a.y, 0x5410), __byte_perm(a.z, a.w, 0x5410), __byte_perm(b.x, b.y, 0x5410),
                        __byte_perm(b.z, b.w, 0x5410));
    out[1] = make_uint4(__byte_perm(a.x, a.y, 0x7632), __byte_perm(a.z, a.w, 0x7632), __byte_perm(b.x, b.y, 0x7632),
                        __byte_perm(b.z, b.w, 0x7632));
  }
}

// CanSplit reports whether this many blocks of a cluster can share places: each has a whole stage.
bool CanSplit(int split, size_t units, int stage_units) {
  int bits = 0;
  while (bits < 3 && 1 << bits < split) ++bits;
  return split == 1 << bits &&
         (bits == 0 || (DivideUp(units, stage_units) >> bits >= 2 && TheDevice().clustered[bits] > 0));
}

// Split is the size of the clusters that share places: the least that leaves each multiprocessor as little as can be.
// blocks run on one at once; half of them take about as long as all.
int Split(const HopperCall& a, double places, int blocks, int units) {
  int split = 1;
  double least = 1e30;
  for (int bits = 0; bits < 4; ++bits) {
    if (!CanSplit(1 << bits, a.units, units)) continue;
    const int all = static_cast<int>(ceil(places * (1 << bits) / TheDevice().clustered[bits])), last = all % blocks;
    const double work = (all - last + (last > 0 ? fmax(last, (blocks + 1) / 2) : 0)) / (1 << bits);
    if (work > 0.9 * least) continue;
    least = work;
    split = 1 << bits;
  }
  return split;
}

// MapPanels makes the tensor map of panel data with so many bytes for each unit.
cudaError_t MapPanels(const HopperCall& a, const void* data, int bytes, int units, CUtensorMap* map) {
  const size_t line = static_cast<size_t>(a.units) * bytes, panels = a.panels / (a.halves ? 2 : 1);
  const unsigned halves = a.halves ? 2 : 1;
  const size_t experts = a.p.kind == kQuantizedLinear ? 1 : a.p.moe.experts;
  const Extent extents[] = {{line / 8, 0, static_cast<unsigned>(units * bytes / 8)},
                            {panels, line, kPlacePanels / halves},
                            {halves, panels * line, halves},
                            {experts, a.panels * line, 1},
                            {1, experts * a.panels * line, 1}};
  return MakePlainMap(map, data, extents, 5);
}

template <bool kEightBits, int kTokens, QuantizedKind kKind>
cudaError_t Run(HopperCall a, cudaStream_t stream) {
  typedef StageLayout<kEightBits, kTokens> L;
  if (cudaError_t e = MapPanels(a, a.p.weights.codes, L::kUnitBytes, L::kUnits, &a.codes)) return e;
  if (!kEightBits) {
    if (cudaError_t e = MapPanels(a, a.p.weights.scale, 16, L::kUnits, &a.scales)) return e;
  }
  const auto kernel = MultiplyQuantized<kEightBits, kTokens, kKind>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes)) return e;
  const MojoMoEArgs& m = a.p.moe;
  const bool linear = a.p.kind == kQuantizedLinear;
  const size_t choices = m.tokens * m.top_k;
  const size_t tiles = linear ? DivideUp(a.p.rows, kTokens) : MostTiles(choices, m.experts, kTokens);
  // Of experts, those that choices at random are of.
  const double hit = linear ? 0 : m.experts * (1 - pow(1 - 1.0 / m.experts, static_cast<double>(choices)));
  const double likely = linear ? tiles : fmax(hit, static_cast<double>(choices) / kTokens);
  const size_t most = tiles * a.row_blocks, blocks = static_cast<size_t>(TheDevice().multiprocessors) * L::kBlocks;
  // Tiles of an expert are multiplied at about the same time, and of tokens that just fill one some have two.
  a.stay = !linear && static_cast<double>(choices) > 0.75 * kTokens * hit ? kStayNormal : kStayFirst;
  if (a.split == 0 && likely * a.row_blocks > 4.0 * blocks) a.split = 1;
  if (a.split == 0) a.split = Split(a, likely * a.row_blocks, L::kBlocks, L::kUnits);
  const size_t grid = a.split > 1 ? most * a.split : most < blocks ? most : blocks;
  return LaunchClusters(kernel, a.split, static_cast<unsigned>(grid), L::kThreads, L::kBytes, stream, a);
}

template <bool kEightBits, int kTokens>
cudaError_t RunKind(const HopperCall& a, cudaStream_t stream) {
  switch (a.p.kind) {
    case kQuantizedGateUp: return Run<kEightBits, kTokens, kQuantizedGateUp>(a, stream);
    case kQuantizedOutputs: return Run<kEightBits, kTokens, kQuantizedOutputs>(a, stream);
    default: return Run<kEightBits, kTokens, kQuantizedLinear>(a, stream);
  }
}

bool IsEightBits(const QuantizedProduct& p) { return p.weights.code == Code::kE4m3; }

// The kernels are empty if compiled for another capability, or for a capability and later ones.
bool HasKernels() {
  if (TheDevice().capability != 90) return false;
  static const bool has = HasHopperCode(MultiplyQuantized<false, 32, kQuantizedLinear>);
  return has;
}

}  // namespace

bool HopperTakes(const QuantizedProduct& p) {
  if (!HasKernels() || (p.kind == kQuantizedGateUp && p.moe.packing == Packing::kNone)) return false;
  if (IsEightBits(p)) return p.rounding == Activations::kFp8;
  return p.weights.code == Code::kE2m1 && p.weights.scales == kMojoExponentScales &&
         p.rounding == Activations::kFloat && p.type == kMojoBFloat16 && Aligned(p.x, 16);
}

bool HopperHas(const QuantizedProduct& p, int tokens, int split) {
  const bool eights = IsEightBits(p);
  if (tokens != 128 && (eights ? tokens != 64 : tokens != 16 && tokens != 32)) return false;
  if (split == 0) return true;
  const int units = eights && tokens == 64 ? StageLayout<true, 64>::kUnits
                    : eights               ? StageLayout<true, 128>::kUnits
                    : tokens == 16         ? StageLayout<false, 16>::kUnits
                    : tokens == 32         ? StageLayout<false, 32>::kUnits
                                           : StageLayout<false, 128>::kUnits;
  return CanSplit(split, p.weights.k / kBlockColumns, units);
}

Operands DivideOperands(const QuantizedProduct& p, Room<256>* room) {
  Operands x = {};
  const size_t count = p.rows * p.weights.k;
  if (IsEightBits(p)) {
    x.numbers = room->Take<char>(count);
    x.steps = room->Take<float>(count / 128);
  } else {
    x.numbers = room->Take<uint16_t>(count);
  }
  return x;
}

cudaError_t PrepareOperands(const QuantizedProduct& p, const Operands& x, bool planned, cudaStream_t stream) {
  const size_t threads = p.rows * p.weights.k / (IsEightBits(p) ? 8 : 16);
  return Launch(IsEightBits(p) ? Prepare<true> : Prepare<false>, static_cast<unsigned>(DivideUp(threads, 256)), 256, 0,
                stream, p, x, planned);
}

cudaError_t QuantizedHopper(const QuantizedProduct& p, const QuantizedConfig& config, const Operands& x,
                            const Operands& to, cudaStream_t stream) {
  const int tokens = config.tokens;
  HopperCall a = {};
  a.p = p;
  a.x = x;
  a.to = to;
  a.units = static_cast<int>(p.weights.k / kBlockColumns);
  a.panels = static_cast<int>(DivideUp(p.weights.n, kPanelRows));
  a.halves = p.kind == kQuantizedGateUp && p.moe.packing == Packing::kHalves;
  a.narrow = p.weights.n % 4 != 0 || !Aligned(p.y, 16);
  a.row_blocks = static_cast<int>(DivideUp(a.panels, kPlacePanels));
  a.split = config.split;
  if (IsEightBits(p)) return (tokens == 64 ? RunKind<true, 64> : RunKind<true, 128>)(a, stream);
  return (tokens == 16 ? RunKind<false, 16> : tokens == 32 ? RunKind<false, 32> : RunKind<false, 128>)(a, stream);
}

}  // namespace mojo

int MojoCudaMultipliesE4M3(mojo::Packing packing) { return mojo::HasKernels() && packing != mojo::Packing::kNone; }
