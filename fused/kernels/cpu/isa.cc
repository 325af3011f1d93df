#include "cpu/isa.h"

#include <string.h>

#if defined(MOJO_X86)
#include <cpuid.h>
#endif
#if defined(MOJO_DOTPROD) && defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(MOJO_BFLOAT) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mojo {
namespace {

#if defined(MOJO_X86)
// __builtin_cpu_supports looks at the operating system's part (saved registers) as well. It does not
// know f16c in every compiler, so that bit is read from cpuid.
bool HasAVX2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  __builtin_cpu_init();
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_F16C) == 0) return false;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#if defined(MOJO_EMULATE_AVX512)
bool HasAVX512() { return HasAVX2(); }
bool HasVNNI() { return HasAVX2(); }
#else
[[maybe_unused]] bool HasAVX512() {
  return HasAVX2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

[[maybe_unused]] bool HasVNNI() { return HasAVX512() && __builtin_cpu_supports("avx512vnni"); }
#endif
#endif

#if defined(MOJO_BFLOAT) && !defined(MOJO_HERE_LEVEL)
bool HasBFloat() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return HasAVX512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1) != 0;
}

// HasTiles reports whether the process may use AMX. Linux saves its registers for processes that asked for it.
bool HasTiles() {
#if defined(__linux__)
  constexpr unsigned kTiles = 1u << 24, kTileBFloat = 1u << 22;
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (~d & (kTiles | kTileBFloat)) != 0) return false;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}
#endif

#if defined(MOJO_DOTPROD)
[[maybe_unused]] bool HasDotProd() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) >> 20 & 1) != 0;  // HWCAP_ASIMDDP
#elif defined(__APPLE__)
  return true;  // every Mac with such a processor
#else
  return false;
#endif
}
#endif

#if defined(MOJO_HERE_LEVEL)
// Here reports whether this machine has the library's instruction set. It takes no cap.
bool Here(const char* cap) {
  if (cap != nullptr && cap[0] != '\0') return false;
#if MOJO_HERE_LEVEL == 2
  return HasAVX512();
#elif MOJO_HERE_LEVEL == 1
  return HasAVX2();
#else
  return true;
#endif
}
#else
// Level is the index of cap among the instruction sets, -1 if unknown.
int Level(const char* cap) {
  if (cap == nullptr || cap[0] == '\0' || strcmp(cap, "avx512") == 0) return 2;
  return strcmp(cap, "avx2") == 0 ? 1 : strcmp(cap, "portable") == 0 ? 0 : -1;
}
#endif

}  // namespace

#if defined(MOJO_HERE_LEVEL)

const KernelTable* BestKernels(const char* cap) { return Here(cap) ? &kHereKernels : nullptr; }
const LinearFns* BestLinear(const char*) { return nullptr; }

#else

const KernelTable* BestKernels(const char* cap) {
  const int level = Level(cap);
  if (level < 0) return nullptr;
#if defined(MOJO_X86)
  if (level >= 2 && HasAVX512()) return &kAVX512Kernels;
  if (level >= 1 && HasAVX2()) return &kAVX2Kernels;
#endif
  return &kPortableKernels;
}

const LinearFns* BestLinear(const char* cap) {
  const int level = Level(cap);
  if (level < 0) return nullptr;
#if defined(MOJO_X86)
  if (level >= 2 && HasVNNI()) return &kAVX512VNNILinear;
  if (level >= 1 && HasAVX2()) return &kAVX2Linear;
#endif
#if defined(MOJO_DOTPROD)
  if (level >= 1 && HasDotProd()) return &kDotProdLinear;
#endif
  return &kPortableLinear;
}

#endif

const BFloatFns* BestBFloat(const char* cap) {
#if defined(MOJO_BFLOAT) && !defined(MOJO_HERE_LEVEL)
  if (Level(cap) >= 2 && HasBFloat()) return HasTiles() ? &kTileBFloat : &kVectorBFloat;
#endif
  (void)cap;
  return nullptr;
}

bool StreamsRows(const KernelTable& kernels) {
#if defined(MOJO_X86)
  __builtin_cpu_init();
  return kernels.lanes < kMostLanes || !__builtin_cpu_is("intel");
#else
  (void)kernels;
  return true;
#endif
}

}  // namespace mojo
