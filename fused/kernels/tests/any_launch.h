// What stands in the place of the CUDA kernels that a test has no function of its own for: see any_launch.cc.
#ifndef MOJO_KERNELS_TESTS_ANY_LAUNCH_H_
#define MOJO_KERNELS_TESTS_ANY_LAUNCH_H_

#include <cuda_runtime_api.h>

namespace mojo_test {

// Launched is called with the stream of such a launch, and returns what the launch returns.
cudaError_t Launched(cudaStream_t stream);

}  // namespace mojo_test

#endif  // MOJO_KERNELS_TESTS_ANY_LAUNCH_H_
