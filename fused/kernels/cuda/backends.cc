#include "cuda/backends.h"

namespace mojo {

MojoType ToMojoType(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: return kMojoFloat16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16: return kMojoBFloat16;
    default: return kMojoFloat32;
  }
}

MojoActivation ToMojoActivation(Activation activation) {
  switch (activation) {
    case Activation::kGelu: return kMojoGelu;
    case Activation::kGeluTanh: return kMojoGeluTanh;
    case Activation::kRelu: return kMojoRelu;
    case Activation::kRelu2: return kMojoReluSquared;
    default: return kMojoSilu;
  }
}

MojoPacking ToMojoPacking(Packing packing) {
  switch (packing) {
    case Packing::kInterleaved: return kMojoInterleaved;
    case Packing::kNone: return kMojoNoGate;
    default: return kMojoHalves;
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

void SetExperts(const MoEShape& shape, const GLUAttributes& gate, Packing packing, MojoMoEArgs* args) {
  args->tokens = shape.tokens;
  args->top_k = shape.k;
  args->experts = shape.experts;
  args->hidden = shape.hidden;
  args->inner = shape.inner;
  args->packing = ToMojoPacking(packing);
  args->activation = ToMojoActivation(gate.activation);
  args->alpha = gate.alpha;
  args->limit = gate.limit;
  args->up_offset = gate.up_offset;
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

}  // namespace mojo
