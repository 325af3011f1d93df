// A replacement for the CUDA kernel of every op, so that the tests of the backends need no GPU and no list of ops. It
// is weak: a test that looks at the arguments of an op's kernel defines its own function.
#include "tests/any_launch.h"

#include "collective/cuda/peers.h"
#include "common/schema.h"
#include "cuda/mojo_cuda.h"

extern "C" cudaError_t MojoAnyLaunch(const void*, cudaStream_t stream) { return mojo_test::Launched(stream); }

#pragma GCC diagnostic ignored "-Wattribute-alias"
#define MOJO_ANY_LAUNCH(op) \
  extern "C" __attribute__((weak, alias("MojoAnyLaunch"))) decltype(MojoCuda##op) MojoCuda##op;
MOJO_CUDA_OPS(MOJO_ANY_LAUNCH)

// The functions that backends call, as weak ones.
#define MOJO_ANY_SIZE(op) \
  extern "C" __attribute__((weak)) size_t Mojo##op##Scratch(const Mojo##op##Args*) { return 64; }
MOJO_ANY_SIZE(TopKRouter)
MOJO_ANY_SIZE(Sample)
MOJO_ANY_SIZE(MoE)
MOJO_ANY_SIZE(Linear)
MOJO_ANY_SIZE(QMoE)
MOJO_ANY_SIZE(Attention)
MOJO_ANY_SIZE(LatentAttention)
MOJO_ANY_SIZE(PagedAttention)
MOJO_ANY_SIZE(QPagedAttention)
MOJO_ANY_SIZE(LinearAttention)
MOJO_ANY_SIZE(AllReduceAddRMSNorm)
extern "C" {
__attribute__((weak)) int MojoMoETakes(const MojoMoEArgs*) { return 1; }
__attribute__((weak)) int MojoQMoETakes(const MojoQMoEArgs*) { return 1; }
__attribute__((weak)) int MojoCudaMultipliesE4M3(mojo::Packing) { return 1; }
__attribute__((weak)) int MojoCudaCapability(void) { return 90; }
}

namespace mojo {
__attribute__((weak)) std::unique_ptr<Peers> Peers::Make(int, int, double, const GatherBytes&, std::string* error) {
  *error = "there are none";
  return nullptr;
}
__attribute__((weak)) Peers::~Peers() {}
__attribute__((weak)) int Peers::Late() const { return -1; }
}  // namespace mojo
