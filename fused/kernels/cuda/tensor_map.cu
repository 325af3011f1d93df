// Tensor maps, by the driver's function, which is looked up at run time so that the library loads without a driver.
#include "cuda/tensor_map.h"

#include <stdint.h>

namespace mojo {
namespace {

typedef CUresult (*Encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                           const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

Encode TheEncode() {
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  return encode;
}

constexpr int kMostDimensions = 5;

cudaError_t Make(CUtensorMap* map, const void* data, const Extent* extents, int dimensions, CUtensorMapDataType type,
                 CUtensorMapSwizzle swizzle) {
  cuuint64_t counts[kMostDimensions], strides[kMostDimensions];
  cuuint32_t boxes[kMostDimensions], steps[kMostDimensions];
  for (int i = 0; i < dimensions; ++i) {
    counts[i] = extents[i].count;
    if (i > 0) strides[i - 1] = extents[i].stride;
    boxes[i] = extents[i].box;
    steps[i] = 1;
  }
  const CUresult result = TheEncode()(map, type, static_cast<cuuint32_t>(dimensions), const_cast<void*>(data), counts,
                                      strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

bool HasTensorMaps() { return TheEncode() != nullptr; }

cudaError_t MakeTensorMap(CUtensorMap* map, const void* data, const Extent* extents, int dimensions) {
  return Make(map, data, extents, dimensions, CU_TENSOR_MAP_DATA_TYPE_UINT16,
              extents[0].box == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B);
}

cudaError_t MakePlainMap(CUtensorMap* map, const void* data, const Extent* extents, int dimensions) {
  return Make(map, data, extents, dimensions, CU_TENSOR_MAP_DATA_TYPE_UINT64, CU_TENSOR_MAP_SWIZZLE_NONE);
}

}  // namespace mojo
