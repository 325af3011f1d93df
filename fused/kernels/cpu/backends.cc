#include "cpu/backends.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "cpu/isa.h"

namespace mojo {
namespace {

// Elements per task: about as long as it takes to wake another thread, several times over.
constexpr size_t kGrain = 16384;

// More tasks than this only cost more to hand out.
constexpr size_t kMaxTasks = 256;

}  // namespace

OrtStatus* RegisterLibrary(OrtSessionOptions* options, const OrtApiBase* base, const OpEntry* table, size_t count) {
  const Api api = ProbeApi(base);
  // A status cannot be made without a table. No such runtime is known.
  if (api.ort == nullptr) return nullptr;
  if (TheKernels() == nullptr) {
    const char* cap = getenv("MOJO_CPU_ISA");
    return Errorf(api, "mojo: environment variable MOJO_CPU_ISA is \"%.64s\"; expected portable, avx2 or avx512",
                  cap == nullptr ? "" : cap);
  }
  return RegisterOps(options, api, table, count);
}

const KernelTable* TheKernels() {
  static const KernelTable* const kernels = BestKernels(getenv("MOJO_CPU_ISA"));
  return kernels;
}

OrtStatus* BFloatProducts(const KernelInit& init, const BFloatFns** fns) {
  *fns = nullptr;
  const char* products = getenv("MOJO_CPU_PRODUCTS");
  if (products == nullptr || products[0] == '\0' || strcmp(products, "exact") == 0) return nullptr;
  if (strcmp(products, "bfloat16") != 0) {
    return Errorf(init.api, "mojo: environment variable MOJO_CPU_PRODUCTS is \"%.64s\"; expected exact or bfloat16",
                  products);
  }
  static const BFloatFns* const best = BestBFloat(getenv("MOJO_CPU_ISA"));
  *fns = best;
  return nullptr;
}

OrtStatus* NoKernel(const KernelInit& init) {
  return Errorf(init.api, "mojo.%s: no CPU kernel for this combination of types", init.def.name);
}

size_t TaskCount(size_t items, size_t width) {
  size_t count = items * width / kGrain;
  if (count > items) count = items;
  if (count > kMaxTasks) count = kMaxTasks;
  return count == 0 ? 1 : count;
}

size_t ProductGroups(size_t units, size_t products) {
  constexpr size_t kGrain = size_t{1} << 17, kMost = 64;  // products that are worth a task; groups
  const size_t most = std::min(units, std::min(kMost, products / kGrain));
  size_t groups = 1;
  while (groups < most) groups *= 2;
  return std::min(groups, units);
}

}  // namespace mojo
