// A replacement for the CUDA kernels that a test does not define itself: see any_launch.cc.
#ifndef MOJO_KERNELS_TESTS_ANY_LAUNCH_H_
#define MOJO_KERNELS_TESTS_ANY_LAUNCH_H_

#include <cuda_runtime_api.h>

namespace mojo_test {

// Launched is called with the stream of such a launch, and returns its result.
cudaError_t Launched(cudaStream_t stream);

}  // namespace mojo_test

#endif  // MOJO_KERNELS_TESTS_ANY_LAUNCH_H_
