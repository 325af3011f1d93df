// LatentAttention on the CPU.
#include "attention/common/attention.h"

#include "attention/cpu/latent_attention_run.h"
#include "cpu/backends.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// LatentKernel is the state of one node.
struct LatentKernel {
  LatentAttentionAttributes attributes{};
  ElementType type = kFloat32;
  HostMemory memory;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

OrtStatus* LatentKernel::Init(const KernelInit& init) {
  type = ToElementType(init.types.inputs[kLatentAttentionQ]);
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  return memory.Find(init);
}

OrtStatus* LatentKernel::Compute(const Api& api, OrtKernelContext* context) const {
  LatentTensors tensors;
  LatentAttentionCall call(api, context, attributes);
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = ReadLatentAttention(&call, &tensors)) return s;
  return RunLatentAttention(api, context, memory, attributes, type, tensors);
}

}  // namespace

const Backend kCPULatentAttention = MakeBackend<LatentKernel>(nullptr);

}  // namespace mojo
