// The CUDA backends of the ops, and what they share.
#ifndef MOJO_KERNELS_CUDA_BACKENDS_H_
#define MOJO_KERNELS_CUDA_BACKENDS_H_

#include "common/ops.h"
#include "cuda/mojo_cuda.h"

namespace mojo {

extern const Backend kCUDARMSNorm;
extern const Backend kCUDAAddRMSNorm;
extern const Backend kCUDAGLU;
extern const Backend kCUDARotaryEmbedding;
extern const Backend kCUDANormRotary;
extern const Backend kCUDATopKRouter;
extern const Backend kCUDAMoE;

// kCUDAProvider is onnxruntime's name for the provider whose nodes these backends run.
constexpr char kCUDAProvider[] = "CUDAExecutionProvider";

// ToMojoType translates the three types that the ops take.
MojoType ToMojoType(ONNXTensorElementDataType type);

// ToMojoActivation translates an activation.
MojoActivation ToMojoActivation(Activation activation);

// SetRotary writes how the tensors of a rotation lie, and its attributes, into args.
void SetRotary(const RotaryLayout& layout, const RotaryEmbeddingAttributes& attributes, MojoRotaryArgs* args);

// ReadStream gives the stream that the running node must launch on: that of the run.
OrtStatus* ReadStream(const Api& api, OrtKernelContext* context, cudaStream_t* stream);

// Launched makes a status that names the op of what a launch returned; null where that is no error.
OrtStatus* Launched(const Api& api, const OpDef& def, cudaError_t error);

// DeviceMemory is the allocator of the device that a node runs on. The node's state holds it.
class DeviceMemory {
 public:
  DeviceMemory() {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  // Find asks onnxruntime for the allocator of the provider that the node is given to, so the device is
  // the session's, whatever its number.
  OrtStatus* Find(const KernelInit& init);

 private:
  friend class Scratch;
  OrtAllocator* allocator_ = nullptr;
  const OrtMemoryInfo* info_ = nullptr;  // the allocator's own
};

// Scratch is device memory for the launches of one run, given back when it goes out of scope: after they
// are launched, and before they have run. That is safe because onnxruntime's arena remembers the stream
// that memory was taken for: only later work of the same stream gets it, which runs after these launches,
// or that of a stream that the arena makes wait for this one.
class Scratch {
 public:
  explicit Scratch(const DeviceMemory& memory) : memory_(memory) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();

  // Take gives bytes of memory, null for 0 bytes. It may be called once.
  OrtStatus* Take(const Api& api, OrtKernelContext* context, const OpDef& def, size_t bytes, void** data);

 private:
  const DeviceMemory& memory_;
  void* data_ = nullptr;
};

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_BACKENDS_H_
