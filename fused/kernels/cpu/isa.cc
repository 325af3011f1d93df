#include "cpu/isa.h"

#include <string.h>

#if defined(MOJO_X86)
#include <cpuid.h>
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

bool HasAVX512() {
  return HasAVX2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

}  // namespace

const KernelTable* BestKernels(const char* cap) {
  int level = 2;
  if (cap != nullptr && cap[0] != '\0') {
    if (strcmp(cap, "portable") == 0) {
      level = 0;
    } else if (strcmp(cap, "avx2") == 0) {
      level = 1;
    } else if (strcmp(cap, "avx512") != 0) {
      return nullptr;
    }
  }
#if defined(MOJO_X86)
  if (level >= 2 && HasAVX512()) return &kAVX512Kernels;
  if (level >= 1 && HasAVX2()) return &kAVX2Kernels;
#endif
  (void)level;
  return &kPortableKernels;
}

}  // namespace mojo
