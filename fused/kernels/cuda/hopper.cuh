// Features new in compute capability 9.0: mbarriers that copies signal, box copies of tensors, and the warpgroup
// multiplication. Each function is one PTX instruction.
#pragma once

#include <cuda.h>

#include <type_traits>

#include "cuda/common.cuh"

namespace mojo {

// L2 eviction policies of copies: evict last, or normal.
constexpr uint64_t kStayFirst = 0x12f0000000000000, kStayNormal = 0x1000000000000000;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A barrier (mbarrier) takes 8 bytes of shared memory. It counts arrivals and copied bytes. Its phase ends when all
// have arrived, and the next one begins.
__device__ __forceinline__ void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// ShowBarriers makes initialized barriers visible to copies; the block must synchronize after it.
__device__ __forceinline__ void ShowBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// ArriveExpecting arrives, and makes the phase wait for this many copied bytes.
__device__ __forceinline__ void ArriveExpecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// ArriveAfterCopies arrives once this thread's cp.async copies are complete.
__device__ __forceinline__ void ArriveAfterCopies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// WaitForPhase waits until the phase of that parity has ended.
__device__ __forceinline__ void WaitForPhase(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n\t"
      ".reg .pred done;\n\t"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra again;\n\t"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// CopyBox starts the copy of a box of a tensor from the given position. The barrier counts its bytes.
__device__ __forceinline__ void CopyBox(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void CopyBox(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y, int z,
                                        uint64_t stay) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
      "{%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(stay)
      : "memory");
}
__device__ __forceinline__ void CopyBox(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y, int z,
                                        int v, int w, uint64_t stay) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
      "{%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(v), "r"(w), "l"(stay)
      : "memory");
}
__device__ __forceinline__ void PrefetchMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// SeeCopies makes data written by cp.async visible to wgmma.
__device__ __forceinline__ void SeeCopies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// WaitForGroup synchronizes the threads of a group; number is the named barrier, and 0 is the barrier of __syncthreads.
template <int kThreads>
__device__ __forceinline__ void WaitForGroup(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}

// EnterGroup counts the thread as arrived, and does not wait.
template <int kThreads>
__device__ __forceinline__ void EnterGroup(int number) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}

// A warpgroup takes registers from the block's pool, or returns them.
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Descriptor is wgmma's descriptor of an operand in shared memory that is contiguous along the depth: rows of 128 bytes
// in the 128-byte swizzle, eight of them 1024 bytes. kDeeper is the offset of 16 steps of depth.
__device__ __forceinline__ uint64_t Descriptor(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
constexpr int kDeeper = 32 >> 4;

// TurnedDescriptor is the same for transposed rows: for each index of depth, 64 bytes of 32 rows in the 64-byte
// swizzle; the next 32 rows follow at an offset of bytes.
__device__ __forceinline__ uint64_t TurnedDescriptor(uint32_t address, int bytes) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(bytes >> 4) << 16 |
         uint64_t{512 >> 4} << 32 | uint64_t{2} << 62;
}
constexpr int kTurnedDeeper = 1024 >> 4;

// WideTurnedDescriptor is the same in the 128-byte swizzle: for each index of depth, 128 bytes of 64 rows; the next 64
// rows follow at an offset of bytes.
__device__ __forceinline__ uint64_t WideTurnedDescriptor(uint32_t address, int bytes) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(bytes >> 4) << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}
constexpr int kWideTurnedDeeper = 2048 >> 4;

__device__ __forceinline__ void BeginMultiply() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void EndMultiply() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kGroups>
__device__ __forceinline__ void WaitForMultiply() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// MultiplyGroup adds the product of 64 rows (kTurned: of a TurnedDescriptor) and 8 * kColumns tokens, 16 deep, to the
// first kColumns of d, or overwrites them if add is false.
template <int kColumns>
using Columns = std::integral_constant<int, kColumns>;
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
#define MOJO_R_1 "%0,%1,%2,%3"
#define MOJO_D_1 "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3])
#define MOJO_R_2 MOJO_R0
#define MOJO_D_2 MOJO_D2(0)
#define MOJO_R_4 MOJO_R_2 "," MOJO_R1
#define MOJO_D_4 MOJO_D_2, MOJO_D2(2)
#define MOJO_R_6 MOJO_R_4 "," MOJO_R2
#define MOJO_D_6 MOJO_D_4, MOJO_D2(4)
#define MOJO_R_8 MOJO_R_6 "," MOJO_R3
#define MOJO_D_8 MOJO_D_6, MOJO_D2(6)
#define MOJO_R_10 MOJO_R_8 "," MOJO_R4
#define MOJO_D_10 MOJO_D_8, MOJO_D2(8)
#define MOJO_R_12 MOJO_R_10 "," MOJO_R5
#define MOJO_D_12 MOJO_D_10, MOJO_D2(10)
#define MOJO_R_14 MOJO_R_12 "," MOJO_R6
#define MOJO_D_14 MOJO_D_12, MOJO_D2(12)
#define MOJO_R_16 MOJO_R_14 "," MOJO_R7
#define MOJO_D_16 MOJO_D_14, MOJO_D2(14)
#define MOJO_R_18 MOJO_R_16 "," MOJO_R8
#define MOJO_D_18 MOJO_D_16, MOJO_D2(16)
#define MOJO_R_20 MOJO_R_18 "," MOJO_R9
#define MOJO_D_20 MOJO_D_18, MOJO_D2(18)
#define MOJO_R_22 MOJO_R_20 "," MOJO_R10
#define MOJO_D_22 MOJO_D_20, MOJO_D2(20)
#define MOJO_R_24 MOJO_R_22 "," MOJO_R11
#define MOJO_D_24 MOJO_D_22, MOJO_D2(22)
#define MOJO_R_26 MOJO_R_24 "," MOJO_R12
#define MOJO_D_26 MOJO_D_24, MOJO_D2(24)
#define MOJO_R_28 MOJO_R_26 "," MOJO_R13
#define MOJO_D_28 MOJO_D_26, MOJO_D2(26)
#define MOJO_R_30 MOJO_R_28 "," MOJO_R14
#define MOJO_D_30 MOJO_D_28, MOJO_D2(28)
#define MOJO_R_32 MOJO_R_30 "," MOJO_R15
#define MOJO_D_32 MOJO_D_30, MOJO_D2(30)
// MOJO_MULTIPLY is a wgmma of a shape and types, into the first columns of d.
// clang-format off
#define MOJO_MULTIPLY(columns, shape, operands, does, rest, ...)                                                       \
  asm volatile(                                                                                                        \
      "{\n\t"                                                                                                          \
      ".reg .pred adds;\n\t"                                                                                           \
      "setp.ne.b32 adds, " does ", 0;\n\t"                                                                             \
      "wgmma.mma_async.sync.aligned.m64n" shape " {" MOJO_R_##columns "}, " operands ", adds, 1, 1" rest ";\n\t"       \
      "}"                                                                                                              \
      : MOJO_D_##columns                                                                                               \
      : __VA_ARGS__)
#define MOJO_MULTIPLY_GROUP(columns, tokens_text, left, right, does, turned)                                           \
  template <class T, int kTurned, int kMost>                                                                           \
  __device__ __forceinline__ void MultiplyGroup(Columns<columns>, float(&d)[kMost][4], uint64_t rows, uint64_t tokens, \
                                                int add) {                                                             \
    if constexpr (std::is_same<T, BFloat>::value) {                                                                    \
      MOJO_MULTIPLY(columns, tokens_text "k16.f32.bf16.bf16", left ", " right, does, ", " turned ", 0", "l"(rows),     \
                    "l"(tokens), "r"(add), "n"(kTurned));                                                              \
    } else {                                                                                                           \
      MOJO_MULTIPLY(columns, tokens_text "k16.f32.f16.f16", left ", " right, does, ", " turned ", 0", "l"(rows),       \
                    "l"(tokens), "r"(add), "n"(kTurned));                                                              \
    }                                                                                                                  \
  }
// clang-format on
MOJO_MULTIPLY_GROUP(2, "16", "%8", "%9", "%10", "%11")
MOJO_MULTIPLY_GROUP(4, "32", "%16", "%17", "%18", "%19")
MOJO_MULTIPLY_GROUP(6, "48", "%24", "%25", "%26", "%27")
MOJO_MULTIPLY_GROUP(8, "64", "%32", "%33", "%34", "%35")
MOJO_MULTIPLY_GROUP(10, "80", "%40", "%41", "%42", "%43")
MOJO_MULTIPLY_GROUP(12, "96", "%48", "%49", "%50", "%51")
MOJO_MULTIPLY_GROUP(14, "112", "%56", "%57", "%58", "%59")
MOJO_MULTIPLY_GROUP(16, "128", "%64", "%65", "%66", "%67")
MOJO_MULTIPLY_GROUP(18, "144", "%72", "%73", "%74", "%75")
MOJO_MULTIPLY_GROUP(20, "160", "%80", "%81", "%82", "%83")
MOJO_MULTIPLY_GROUP(22, "176", "%88", "%89", "%90", "%91")
MOJO_MULTIPLY_GROUP(24, "192", "%96", "%97", "%98", "%99")
MOJO_MULTIPLY_GROUP(26, "208", "%104", "%105", "%106", "%107")
MOJO_MULTIPLY_GROUP(28, "224", "%112", "%113", "%114", "%115")
MOJO_MULTIPLY_GROUP(30, "240", "%120", "%121", "%122", "%123")
MOJO_MULTIPLY_GROUP(32, "256", "%128", "%129", "%130", "%131")

// MultiplyKept does the same with 64 rows that lie in registers, 16 deep as the sums of two columns lie there, and a
// right operand of a WideTurnedDescriptor, or of a Descriptor if kTurned is 0.
// clang-format off
#define MOJO_MULTIPLY_KEPT(columns, width, left, right, does, turned)                                                  \
  template <class T, int kTurned = 1, int kMost>                                                                       \
  __device__ __forceinline__ void MultiplyKept(Columns<columns>, float(&d)[kMost][4], const uint32_t(&rows)[4],        \
                                               uint64_t right_side, int add) {                                         \
    if constexpr (std::is_same<T, BFloat>::value) {                                                                    \
      MOJO_MULTIPLY(columns, width "k16.f32.bf16.bf16", left ", " right, does, ", " turned, "r"(rows[0]), "r"(rows[1]),\
                    "r"(rows[2]), "r"(rows[3]), "l"(right_side), "r"(add), "n"(kTurned));                              \
    } else {                                                                                                           \
      MOJO_MULTIPLY(columns, width "k16.f32.f16.f16", left ", " right, does, ", " turned, "r"(rows[0]), "r"(rows[1]),  \
                    "r"(rows[2]), "r"(rows[3]), "l"(right_side), "r"(add), "n"(kTurned));                              \
    }                                                                                                                  \
  }
// clang-format on
MOJO_MULTIPLY_KEPT(8, "64", "{%32,%33,%34,%35}", "%36", "%37", "%38")
MOJO_MULTIPLY_KEPT(16, "128", "{%64,%65,%66,%67}", "%68", "%69", "%70")
MOJO_MULTIPLY_KEPT(32, "256", "{%128,%129,%130,%131}", "%132", "%133", "%134")

// MultiplyWidened adds the product of 64 rows that lie in registers and 8 * kColumns tokens of a Descriptor, 32 bytes
// of them deep: numbers of bfloat16, or of 8 bits (e4m3).
// clang-format off
#define MOJO_MULTIPLY_WIDENED(columns, width, left, right, does)                                                       \
  template <bool kEightBits, int kMost>                                                                                \
  __device__ __forceinline__ void MultiplyWidened(Columns<columns>, float (&d)[kMost][4], const uint32_t(&rows)[4],    \
                                                  uint64_t tokens, int add) {                                          \
    if constexpr (kEightBits) {                                                                                        \
      MOJO_MULTIPLY(columns, width "k32.f32.e4m3.e4m3", left ", " right, does, "", "r"(rows[0]), "r"(rows[1]),         \
                    "r"(rows[2]), "r"(rows[3]), "l"(tokens), "r"(add));                                                \
    } else {                                                                                                           \
      MOJO_MULTIPLY(columns, width "k16.f32.bf16.bf16", left ", " right, does, ", 0", "r"(rows[0]), "r"(rows[1]),      \
                    "r"(rows[2]), "r"(rows[3]), "l"(tokens), "r"(add));                                                \
    }                                                                                                                  \
  }
// clang-format on
MOJO_MULTIPLY_WIDENED(1, "8", "{%4,%5,%6,%7}", "%8", "%9")
MOJO_MULTIPLY_WIDENED(2, "16", "{%8,%9,%10,%11}", "%12", "%13")
MOJO_MULTIPLY_WIDENED(4, "32", "{%16,%17,%18,%19}", "%20", "%21")
MOJO_MULTIPLY_WIDENED(8, "64", "{%32,%33,%34,%35}", "%36", "%37")
MOJO_MULTIPLY_WIDENED(10, "80", "{%40,%41,%42,%43}", "%44", "%45")
MOJO_MULTIPLY_WIDENED(14, "112", "{%56,%57,%58,%59}", "%60", "%61")
MOJO_MULTIPLY_WIDENED(16, "128", "{%64,%65,%66,%67}", "%68", "%69")

// Arrived keeps the compiler from reading sums before the wait.
template <int kColumns>
__device__ __forceinline__ void Arrived(float (&d)[kColumns][4]) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace mojo
