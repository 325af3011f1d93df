// The products of large tiles on compute capability 9.0, with wgmma.
//
// As MultiplyTile of moe_mma.cu, from which it has all but the multiplication: both operands are read from
// shared memory, and a warpgroup of four warps multiplies 64 rows by all tokens at once. Of tiles of 128
// tokens two blocks run on a multiprocessor, so that one multiplies while the other waits or stores; those
// of 256 read less for each multiplication, and are for experts with that many choices.
#include <type_traits>

#include "cuda/moe_tile.cuh"

namespace mojo {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Descriptor is how wgmma finds rows of 128 bytes in shared memory: 128 byte swizzle, eight rows 1024 apart.
__device__ __forceinline__ uint64_t Descriptor(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

__device__ __forceinline__ void BeginMultiply() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void EndMultiply() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kGroups>
__device__ __forceinline__ void WaitForMultiply() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// MultiplyGroup adds the product of 64 rows and 8 * columns tokens, 16 deep, to d[columns][4].
#define MOJO_R0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define MOJO_R1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define MOJO_R2 "%16,%17,%18,%19,%20,%21,%22,%23"
#define MOJO_R3 "%24,%25,%26,%27,%28,%29,%30,%31"
#define MOJO_R4 "%32,%33,%34,%35,%36,%37,%38,%39"
#define MOJO_R5 "%40,%41,%42,%43,%44,%45,%46,%47"
#define MOJO_R6 "%48,%49,%50,%51,%52,%53,%54,%55"
#define MOJO_R7 "%56,%57,%58,%59,%60,%61,%62,%63"
#define MOJO_R8 "%64,%65,%66,%67,%68,%69,%70,%71"
#define MOJO_R9 "%72,%73,%74,%75,%76,%77,%78,%79"
#define MOJO_R10 "%80,%81,%82,%83,%84,%85,%86,%87"
#define MOJO_R11 "%88,%89,%90,%91,%92,%93,%94,%95"
#define MOJO_R12 "%96,%97,%98,%99,%100,%101,%102,%103"
#define MOJO_R13 "%104,%105,%106,%107,%108,%109,%110,%111"
#define MOJO_R14 "%112,%113,%114,%115,%116,%117,%118,%119"
#define MOJO_R15 "%120,%121,%122,%123,%124,%125,%126,%127"
#define MOJO_D2(i)                                                                                                     \
  "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3]), "+f"(d[i + 1][0]), "+f"(d[i + 1][1]), "+f"(d[i + 1][2]), \
      "+f"(d[i + 1][3])
#define MOJO_R_8 MOJO_R0 "," MOJO_R1 "," MOJO_R2 "," MOJO_R3
#define MOJO_D_8 MOJO_D2(0), MOJO_D2(2), MOJO_D2(4), MOJO_D2(6)
#define MOJO_R_10 MOJO_R_8 "," MOJO_R4
#define MOJO_D_10 MOJO_D_8, MOJO_D2(8)
#define MOJO_R_12 MOJO_R_10 "," MOJO_R5
#define MOJO_D_12 MOJO_D_10, MOJO_D2(10)
#define MOJO_R_14 MOJO_R_12 "," MOJO_R6
#define MOJO_D_14 MOJO_D_12, MOJO_D2(12)
#define MOJO_R_16 MOJO_R_14 "," MOJO_R7
#define MOJO_D_16 MOJO_D_14, MOJO_D2(14)
#define MOJO_R_20 MOJO_R_16 "," MOJO_R8 "," MOJO_R9
#define MOJO_D_20 MOJO_D_16, MOJO_D2(16), MOJO_D2(18)
#define MOJO_R_24 MOJO_R_20 "," MOJO_R10 "," MOJO_R11
#define MOJO_D_24 MOJO_D_20, MOJO_D2(20), MOJO_D2(22)
#define MOJO_R_28 MOJO_R_24 "," MOJO_R12 "," MOJO_R13
#define MOJO_D_28 MOJO_D_24, MOJO_D2(24), MOJO_D2(26)
#define MOJO_R_32 MOJO_R_28 "," MOJO_R14 "," MOJO_R15
#define MOJO_D_32 MOJO_D_28, MOJO_D2(28), MOJO_D2(30)
#define MOJO_MULTIPLY(columns, tokens_text, left, right, types)                                       \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" tokens_text "k16.f32." types " {" MOJO_R_##columns \
               "}, " left ", " right ", 1, 1, 1, 0, 0;"                                               \
               : MOJO_D_##columns                                                                     \
               : "l"(rows), "l"(tokens))
#define MOJO_MULTIPLY_GROUP(columns, tokens_text, left, right)                                           \
  template <class T>                                                                                     \
  __device__ __forceinline__ void MultiplyGroup(float(&d)[columns][4], uint64_t rows, uint64_t tokens) { \
    if constexpr (std::is_same<T, BFloat>::value) {                                                      \
      MOJO_MULTIPLY(columns, tokens_text, left, right, "bf16.bf16");                                     \
    } else {                                                                                             \
      MOJO_MULTIPLY(columns, tokens_text, left, right, "f16.f16");                                       \
    }                                                                                                    \
  }
MOJO_MULTIPLY_GROUP(8, "64", "%32", "%33")
MOJO_MULTIPLY_GROUP(10, "80", "%40", "%41")
MOJO_MULTIPLY_GROUP(12, "96", "%48", "%49")
MOJO_MULTIPLY_GROUP(14, "112", "%56", "%57")
MOJO_MULTIPLY_GROUP(16, "128", "%64", "%65")
MOJO_MULTIPLY_GROUP(20, "160", "%80", "%81")
MOJO_MULTIPLY_GROUP(24, "192", "%96", "%97")
MOJO_MULTIPLY_GROUP(28, "224", "%112", "%113")
MOJO_MULTIPLY_GROUP(32, "256", "%128", "%129")

// Run multiplies and stores a tile of at most 8 * kColumns choices.
template <class T, int kTokens, Product kProduct, int kColumns>
__device__ __forceinline__ void Run(const MojoMoEArgs& a, const MoEWork& work, const Place& place, char* memory) {
  // A block that is alone goes on while its last multiplication runs; the stage of that is not free then.
  constexpr bool kAlone = kTokens == 256;
  constexpr int kStages = Stages(kTokens), kAhead = kAlone ? kStages - 2 : kStages - 1;
  const Source<8 * kColumns, kProduct, false> source(a, work, place);
  const uint32_t shared = SharedAddress(memory);
  const int steps = source.Steps(), group = threadIdx.x / 128;
  BeginTile<kTokens, kProduct, kAhead>(source, shared);
  float sum[1][kColumns][4] = {};
  int stage = 0, free_stage = kAhead;
  for (int k = 0; k < steps; ++k) {
    WaitForGroups<kAhead - 1>();
    // What cp.async wrote is read by another engine.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (k + kAhead < steps) source.Start(shared + free_stage * StageBytes(kTokens), k + kAhead);
    EndGroup();
    free_stage = free_stage == kStages - 1 ? 0 : free_stage + 1;
    const uint32_t rows = shared + stage * StageBytes(kTokens);
    const uint64_t left = Descriptor(rows + group * 64 * 128), right = Descriptor(rows + kRowBytes);
    stage = stage == kStages - 1 ? 0 : stage + 1;
    BeginMultiply();
#pragma unroll
    for (int part = 0; part < kTileDeep / 16; ++part) MultiplyGroup<T>(sum[0], left + 2 * part, right + 2 * part);
    EndMultiply();
    WaitForMultiply<kAlone ? 1 : 0>();
  }
  WaitForMultiply<0>();
  WaitForGroups<0>();
  __syncthreads();
  const int row = threadIdx.x / 32 * 16;
  const auto column = [](int c) { return c * 8; };
  if constexpr (kProduct == kDown) {
    StoreOutputs<T>(a, work, place, memory, sum, row, column);
  } else {
    StoreActivated<T, kProduct, false>(a, work, place, memory, sum, row, column);
  }
}

#endif

// WarpGroupTile. Registers: 119 for tiles of 128 tokens, of which two blocks run on a multiprocessor; 191
// for those of 256. Shared memory: 96 and 192 KB. A step of 128 x 256 reads 48 KB from L2 for 4.2 million
// operations, one of 128 x 128 32 KB for 2.1 million.
template <class T, int kTokens, Product kProduct>
__global__ __launch_bounds__(kTileThreads,
                             kTokens == 256 ? 1 : 2) void WarpGroupTile(const __grid_constant__ MojoMoEArgs a,
                                                                        const __grid_constant__ MoEWork work,
                                                                        int row_blocks) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  Place place;
  if (!place.Begin(work, row_blocks, kTokens, kProduct)) return;
  if constexpr (kTokens == 128) {
    if (place.count <= 64) {
      Run<T, kTokens, kProduct, 8>(a, work, place, memory);
    } else if (place.count <= 80) {
      Run<T, kTokens, kProduct, 10>(a, work, place, memory);
    } else if (place.count <= 96) {
      Run<T, kTokens, kProduct, 12>(a, work, place, memory);
    } else if (place.count <= 112) {
      Run<T, kTokens, kProduct, 14>(a, work, place, memory);
    } else {
      Run<T, kTokens, kProduct, 16>(a, work, place, memory);
    }
  } else {
    if (place.count <= 64) {
      Run<T, kTokens, kProduct, 8>(a, work, place, memory);
    } else if (place.count <= 128) {
      Run<T, kTokens, kProduct, 16>(a, work, place, memory);
    } else if (place.count <= 160) {
      Run<T, kTokens, kProduct, 20>(a, work, place, memory);
    } else if (place.count <= 192) {
      Run<T, kTokens, kProduct, 24>(a, work, place, memory);
    } else if (place.count <= 224) {
      Run<T, kTokens, kProduct, 28>(a, work, place, memory);
    } else {
      Run<T, kTokens, kProduct, 32>(a, work, place, memory);
    }
  }
#endif
}

template <class T, int kTokens>
cudaError_t LaunchProduct(const MojoMoEArgs& a, const MoEWork& work, Product product, unsigned blocks, int row_blocks,
                          cudaStream_t stream) {
  const auto kernel = product == kDown    ? WarpGroupTile<T, kTokens, kDown>
                      : product == kGated ? WarpGroupTile<T, kTokens, kGated>
                                          : WarpGroupTile<T, kTokens, kPlain>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SharedBytes(kTokens)))
    return e;
  return Launch(kernel, blocks, kTileThreads, SharedBytes(kTokens), stream, a, work, row_blocks);
}

}  // namespace

// The kernels are empty where they were compiled for another capability, or for one and later ones.
bool HasHopperTile() {
  if (TheDevice().capability != 90) return false;
  static const bool has = [] {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, WarpGroupTile<BFloat, 128, kDown>) == cudaSuccess &&
           attributes.ptxVersion >= 90;
  }();
  return has;
}

cudaError_t HopperTile(const MojoMoEArgs& a, const MoEWork& work, Product product, int tokens, unsigned blocks,
                       int row_blocks, cudaStream_t stream) {
  const bool bfloat = a.x_type == kMojoBFloat16;
  const auto launch = tokens == 256 ? (bfloat ? LaunchProduct<BFloat, 256> : LaunchProduct<Half, 256>)
                                    : (bfloat ? LaunchProduct<BFloat, 128> : LaunchProduct<Half, 128>);
  return launch(a, work, product, blocks, row_blocks, stream);
}

}  // namespace mojo
