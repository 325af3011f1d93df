// The CUDA backends of the ops, and their shared parts.
#ifndef MOJO_KERNELS_CUDA_BACKENDS_H_
#define MOJO_KERNELS_CUDA_BACKENDS_H_

#include "attention/common/attention.h"
#include "common/device_memory.h"
#include "common/kernel.h"
#include "cuda/mojo_cuda.h"
#include "moe/common/moe.h"
#include "rotary/common/rotary_embedding.h"

namespace mojo {

#define MOJO_DECLARE(op) extern const Backend kCUDA##op;
MOJO_CUDA_OPS(MOJO_DECLARE)
#undef MOJO_DECLARE

// kCUDAProvider is onnxruntime's name for the provider whose nodes these backends run.
constexpr char kCUDAProvider[] = "CUDAExecutionProvider";

// ToMojoType translates the three types that the ops take.
MojoType ToMojoType(ONNXTensorElementDataType type);

// ToMojoActivation translates an activation.
MojoActivation ToMojoActivation(Activation activation);

// ToMojoPacking translates the layout of gate and up.
MojoPacking ToMojoPacking(Packing packing);

// SetRotary writes the layout of a rotation's tensors, and its attributes, into args.
void SetRotary(const RotaryLayout& layout, const RotaryEmbeddingAttributes& attributes, MojoRotaryArgs* args);

// SetExperts writes the sizes of an experts call, and the activation between its two products, into args.
void SetExperts(const MoEShape& shape, const GLUAttributes& gate, Packing packing, MojoMoEArgs* args);

// ReadStream returns the run's stream, on which the node must launch.
OrtStatus* ReadStream(const Api& api, OrtKernelContext* context, cudaStream_t* stream);

// Launched turns a launch error into a status that names the op, or returns null on success.
OrtStatus* Launched(const Api& api, const OpDef& def, cudaError_t error);

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_BACKENDS_H_
