// The CUDA backends of the ops, and their shared parts.
#pragma once

#include <type_traits>

#include "common/device_memory.h"
#include "common/kernel.h"
#include "cuda/mojo_cuda.h"

namespace mojo {

#define MOJO_DECLARE(op) extern const Backend kCUDA##op;
MOJO_CUDA_OPS(MOJO_DECLARE)
#undef MOJO_DECLARE

// kCUDAProvider is onnxruntime's name for the provider whose nodes these backends run.
constexpr char kCUDAProvider[] = "CUDAExecutionProvider";

// ReadStream returns the run's stream, on which the node must launch.
OrtStatus* ReadStream(const Api& api, OrtKernelContext* context, cudaStream_t* stream);

// Launched turns a launch error into a status that names the op, or returns null on success.
OrtStatus* Launched(const Api& api, const OpDef& def, cudaError_t error);

// ScratchOf is the place of the scratch memory in the arguments of a launch.
template <class Args>
void** ScratchOf(Args* args) {
  return &args->scratch;
}
inline void** ScratchOf(MojoQMoEArgs* args) { return &args->moe.scratch; }

// CUDAKernel is the state of one node: KernelOf has its functions. kLaunch launches the op's kernels; kScratch returns
// the bytes of scratch memory that it needs. Kernel inherits CUDAKernel and has
//
//   OrtStatus* Fill(Call* call, Args* args) const;
//
// which makes the outputs, and writes the tensors, sizes and types of a node, whose inputs are read, into args. If Args
// inherits the attributes of the op, they are there already. Compute launches nothing if all outputs are empty.
template <class Kernel, class Call, class Args, auto kLaunch, auto kScratch = nullptr,
          class Attributes = typename Call::Attributes>
struct CUDAKernel : NodeState<Attributes> {
  static constexpr bool kHasScratch = !std::is_null_pointer_v<decltype(kScratch)>;

  DeviceMemory memory;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState<Attributes>::Init(init)) return s;
    return kHasScratch ? memory.Find(init) : nullptr;
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    Call call(api, context, this->attributes);
    Args args{};
    if constexpr (std::is_base_of_v<Attributes, Args>) static_cast<Attributes&>(args) = this->attributes;
    cudaStream_t stream;
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = static_cast<const Kernel*>(this)->Fill(&call, &args)) return s;
    if (call.Empty()) return nullptr;
    if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
    Scratch scratch(memory);
    if constexpr (kHasScratch) {
      if (OrtStatus* s = scratch.Take(api, context, call.def(), kScratch(&args), ScratchOf(&args))) return s;
    }
    return Launched(api, call.def(), kLaunch(&args, stream));
  }
};

}  // namespace mojo
