// QMoE on CUDA.
#include <initializer_list>

#include "linear/cuda/quantized.h"
#include "moe/cuda/moe_tuned.h"
#include "qmoe/common/qmoe.h"

namespace mojo {
namespace {

// QMoEKernel is the state of one node.
struct QMoEKernel {
  QMoEForm attributes{};
  MojoType x_type = kMojoFloat32, weights_type = kMojoFloat32;
  DeviceMemory memory;
  TunedMoE tuned;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
  const char* Format() const;
  OrtStatus* ReadTables(const KernelInit& init);
  void SetForm(const MoEShape& shape, const QuantizedTensors& gate_up, const QuantizedTensors& down,
               MojoQMoEArgs* args) const;
};

// SetForm writes the node's attributes and types, and the sizes, into args.
void QMoEKernel::SetForm(const MoEShape& shape, const QuantizedTensors& gate_up, const QuantizedTensors& down,
                         MojoQMoEArgs* args) const {
  MojoMoEArgs& moe = args->moe;
  SetExperts(shape, attributes.gate, attributes.packing, &moe);
  moe.x_type = x_type;
  moe.weights_type = weights_type;
  moe.expert_type = kMojoFloat32;
  SetWeights(attributes.gate_up, gate_up, &args->gate_up);
  SetWeights(attributes.down, down, &args->down);
  args->rounding = ToMojoRounding(attributes.activations);
}

// Format names the format if it has tables, or is empty.
const char* QMoEKernel::Format() const {
  const QMoEForm& a = attributes;
  if (a.gate_up.code != a.down.code || x_type != kMojoBFloat16) return "";
  if (a.gate_up.code == Code::kE4m3 && a.activations == Activations::kFp8) return "fp8";
  return a.gate_up.code == Code::kE2m1 && a.activations == Activations::kFloat ? "mxfp4" : "";
}

// ReadTables reads the tables for the node.
OrtStatus* QMoEKernel::ReadTables(const KernelInit& init) {
  return tuned.Read(init, Format(), false, [&](const MoETableShape& s, size_t tokens, const MojoMoEConfig& config) {
    if (s.hidden != attributes.gate_up.k || s.inner != attributes.down.k) return true;  // other experts'
    MojoQMoEArgs call{};
    SetForm({tokens, s.top_k, s.experts, s.hidden, s.inner, 0}, {}, {}, &call);
    call.moe.config = config;
    return MojoQMoETakes(&call) != 0;
  });
}

OrtStatus* QMoEKernel::Init(const KernelInit& init) {
  x_type = ToMojoType(init.types.inputs[kQMoEX]);
  weights_type = ToMojoType(init.types.inputs[kQMoEWeights]);
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  const QMoEForm& a = attributes;
  for (const Code code : {a.gate_up.code, a.down.code}) {
    if (OrtStatus* s = CheckCode(init.api, kQMoE, code, a.activations, ToMojoPacking(a.packing))) return s;
  }
  if (OrtStatus* s = memory.Find(init)) return s;
  return ReadTables(init);
}

// This does not check the ids, as in MoE: the kernels skip invalid ids.
OrtStatus* QMoEKernel::Compute(const Api& api, OrtKernelContext* context) const {
  QMoECall call(api, context, attributes);
  MoEShape shape;
  QuantizedTensors gate_up, down;
  MojoQMoEArgs args{};
  MojoMoEArgs& moe = args.moe;
  cudaStream_t stream;
  if (OrtStatus* s = ReadQMoE(api, attributes, &call, &shape, &gate_up, &down)) return s;
  if (OrtStatus* s = call.Make(0, &moe.y)) return s;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  if (shape.tokens == 0) return nullptr;
  moe.x = call.data[kQMoEX];
  moe.weights = call.data[kQMoEWeights];
  moe.ids = call.Get<int64_t>(kQMoEIds);
  moe.gate_up_bias = call.data[kQMoEGateUpBias];
  moe.down_bias = call.data[kQMoEDownBias];
  SetForm(shape, gate_up, down, &args);
  tuned.Choose(&moe, [&args](const MojoMoEConfig& config) {
    MojoQMoEArgs call = args;
    call.moe.config = config;
    return MojoQMoETakes(&call) != 0;
  });
  Scratch scratch(memory);
  if (OrtStatus* s = scratch.Take(api, context, kQMoE, MojoQMoEScratch(&args), &moe.scratch)) return s;
  return Launched(api, kQMoE, MojoCudaQMoE(&args, stream));
}

}  // namespace

const Backend kCUDAQMoE = MakeBackend<QMoEKernel>(kCUDAProvider);

}  // namespace mojo
