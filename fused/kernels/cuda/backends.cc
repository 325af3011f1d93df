#include "cuda/backends.h"

namespace mojo {

MojoType ToMojoType(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
      return kMojoFloat16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
      return kMojoBFloat16;
    default:
      return kMojoFloat32;
  }
}

MojoActivation ToMojoActivation(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return kMojoGelu;
    case Activation::kGeluTanh:
      return kMojoGeluTanh;
    case Activation::kRelu:
      return kMojoRelu;
    case Activation::kReluSquared:
      return kMojoReluSquared;
    default:
      return kMojoSilu;
  }
}

void SetRotary(const RotaryLayout& layout, const RotaryEmbeddingAttributes& attributes, MojoRotaryArgs* args) {
  static_assert(MOJO_MAX_DIMS >= kMaxRank, "a tensor's leading dims must fit");
  args->rank = static_cast<int>(layout.rank);
  for (size_t i = 0; i < layout.rank; ++i) {
    args->dims[i] = layout.dims[i];
    args->cos_step[i] = layout.cos_step[i];
    args->sin_step[i] = layout.sin_step[i];
  }
  args->width = layout.width;
  args->first = layout.first;
  args->rotated = layout.rotated;
  args->cos_wide = layout.cos_wide;
  args->sin_wide = layout.sin_wide;
  args->interleaved = attributes.interleaved;
  args->output_interleaved = attributes.output_interleaved;
}

OrtStatus* ReadStream(const Api& api, OrtKernelContext* context, cudaStream_t* stream) {
  void* found = nullptr;
  if (OrtStatus* s = api.ort->KernelContext_GetGPUComputeStream(context, &found)) return s;
  *stream = static_cast<cudaStream_t>(found);
  return nullptr;
}

OrtStatus* Launched(const Api& api, const OpDef& def, cudaError_t error) {
  if (error == cudaSuccess) return nullptr;
  return Errorf(api, "mojo.%s: the CUDA kernel was not launched: %s (%s)", def.name, cudaGetErrorString(error),
                cudaGetErrorName(error));
}

DeviceMemory::~DeviceMemory() {
  if (allocator_ != nullptr) TheApi().ort->ReleaseAllocator(allocator_);
}

OrtStatus* DeviceMemory::Find(const KernelInit& init) {
  const Api& api = init.api;
  if (!api.has_scratch_buffer()) {
    return Errorf(api, "mojo.%s: its CUDA kernel needs onnxruntime 1.18 or newer, for scratch memory; this one has API "
                  "version %u",
                  init.def.name, static_cast<unsigned>(api.version));
  }
  if (OrtStatus* s = api.ort->KernelInfoGetAllocator(init.info, OrtMemTypeDefault, &allocator_)) return s;
  return api.ort->AllocatorGetInfo(allocator_, &info_);
}

Scratch::~Scratch() {
  if (data_ == nullptr) return;
  const OrtApi& ort = *TheApi().ort;
  if (OrtStatus* s = ort.AllocatorFree(memory_.allocator_, data_)) ort.ReleaseStatus(s);
}

OrtStatus* Scratch::Take(const Api& api, OrtKernelContext* context, const OpDef& def, size_t bytes, void** data) {
  *data = nullptr;
  if (bytes == 0) return nullptr;
  // Not AllocatorAlloc: that knows no stream, and its memory could go to another stream too early.
  OrtStatus* cause = api.ort->KernelContext_GetScratchBuffer(context, memory_.info_, bytes, &data_);
  if (cause == nullptr && data_ != nullptr) {
    *data = data_;
    return nullptr;
  }
  OrtStatus* status = Errorf(api, "mojo.%s: no %zu bytes of scratch memory on the device: %.400s", def.name, bytes,
                             cause == nullptr ? "out of memory" : api.ort->GetErrorMessage(cause));
  if (cause != nullptr) api.ort->ReleaseStatus(cause);
  return status;
}

}  // namespace mojo
