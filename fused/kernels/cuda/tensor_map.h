// The maps by which Hopper's copies find a box of a tensor. The driver makes them on the host.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <stddef.h>

namespace mojo {

// Extent is one dimension of a tensor of 16-bit numbers: its size, its stride in bytes, and the size of a box in it.
// The first dimension is contiguous.
struct Extent {
  size_t count;
  size_t stride;
  unsigned box;
};

// HasTensorMaps reports whether the driver makes maps.
bool HasTensorMaps();

// HasHopperCode reports whether the device has a kernel's code for capability 9.0, and maps for it.
template <class Kernel>
bool HasHopperCode(Kernel* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90 && HasTensorMaps();
}

// MakeTensorMap makes the map of a tensor of 2 to 5 dimensions, the innermost first. The rows of its boxes are 128 or
// 64 bytes, with the swizzle of that size in shared memory. Elements outside of the tensor are zero.
cudaError_t MakeTensorMap(CUtensorMap* map, const void* data, const Extent* extents, int dimensions);

// MakePlainMap is the same for numbers of 8 bytes and boxes of any rows, without a swizzle.
cudaError_t MakePlainMap(CUtensorMap* map, const void* data, const Extent* extents, int dimensions);

}  // namespace mojo
