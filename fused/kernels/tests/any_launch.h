// A replacement for the CUDA kernels that a test does not define itself: see any_launch.cc.
#pragma once

#include <cuda_runtime_api.h>

namespace mojo_test {

// Launched is called with the stream of such a launch, and returns its result.
cudaError_t Launched(cudaStream_t stream);

}  // namespace mojo_test
