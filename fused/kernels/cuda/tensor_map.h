// The maps by which Hopper's copies find a box of a tensor. The driver makes them on the host.
#ifndef MOJO_KERNELS_CUDA_TENSOR_MAP_H_
#define MOJO_KERNELS_CUDA_TENSOR_MAP_H_

#include <cuda.h>
#include <cuda_runtime.h>
#include <stddef.h>

namespace mojo {

// Extent is one dimension of a tensor of 16 bit numbers: how many there are, how many bytes apart, and how
// many of them a box has. The first one's numbers lie side by side.
struct Extent {
  size_t count;
  size_t stride;
  unsigned box;
};

// HasTensorMaps tells whether the driver makes maps.
bool HasTensorMaps();

// MakeTensorMap makes the map of a tensor of 2 to 5 dimensions, the innermost first. The rows of its boxes are 128
// or 64 bytes, and lie in the swizzle of that size in shared memory. What is outside of the tensor is zero.
cudaError_t MakeTensorMap(CUtensorMap* map, const void* data, const Extent* extents, int dimensions);

// MakePlainMap is the same for numbers of 8 bytes and boxes of any rows, which lie one after the other.
cudaError_t MakePlainMap(CUtensorMap* map, const void* data, const Extent* extents, int dimensions);

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_TENSOR_MAP_H_
