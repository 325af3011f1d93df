// A function in the place of the CUDA kernel of every op, so that the tests of the backends need no GPU and no list of
// ops. It is weak: a test that looks at the arguments of an op's kernel has a function of its own.
#include "tests/any_launch.h"

#include "common/schema.h"
#include "cuda/mojo_cuda.h"

extern "C" cudaError_t MojoAnyLaunch(const void*, cudaStream_t stream) { return mojo_test::Launched(stream); }

#pragma GCC diagnostic ignored "-Wattribute-alias"
#define MOJO_ANY_LAUNCH(op) \
  extern "C" __attribute__((weak, alias("MojoAnyLaunch"))) decltype(MojoCuda##op) MojoCuda##op;
MOJO_CUDA_OPS(MOJO_ANY_LAUNCH)
