// QMoE on CUDA.
#include "qmoe/common/qmoe.h"

#include "linear/cuda/quantized.h"
#include "moe/cuda/experts.h"

namespace mojo {
namespace {

// QMoEKernel is the state of one node.
struct QMoEKernel
    : ExpertsKernel<QMoEKernel, QMoECall, MojoQMoEArgs, MojoCudaQMoE, MojoQMoEScratch, MojoQMoETakes, QMoEForm> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = CUDAKernel::Init(init)) return s;
    const QMoEForm& a = attributes;
    for (const Code code : {a.gate_up.code, a.down.code}) {
      if (OrtStatus* s = CheckCode(init.api, kQMoE, code, a.activations, a.packing)) return s;
    }
    return ReadTables(init, Format(), false,
                      [&](const MoETableShape& s) { return s.hidden == a.gate_up.k && s.inner == a.down.k; });
  }

  // Format names the format if it has tables, or is empty.
  const char* Format() const {
    const QMoEForm& a = attributes;
    if (a.gate_up.code != a.down.code || Input(kQMoEX) != kMojoBFloat16) return "";
    if (a.gate_up.code == Code::kE4m3 && a.activations == Activations::kFp8) return "fp8";
    return a.gate_up.code == Code::kE2m1 && a.activations == Activations::kFloat ? "mxfp4" : "";
  }

  void SetForm(MojoQMoEArgs* args) const { SetForm({}, args); }

  void SetForm(const QMoETensors& tensors, MojoQMoEArgs* args) const {
    args->moe.gate = attributes.gate;
    args->moe.packing = attributes.packing;
    args->gate_up = ToMojoWeights(attributes.gate_up, tensors.gate_up);
    args->down = ToMojoWeights(attributes.down, tensors.down);
    args->rounding = attributes.activations;
  }

  OrtStatus* Fill(QMoECall* call, MojoQMoEArgs* args) const {
    QMoETensors tensors;
    if (OrtStatus* s = ReadQMoE(*call, attributes, &tensors)) return s;
    SetForm(tensors, args);
    args->moe.gate_up_bias = call->data[kQMoEGateUpBias];
    args->moe.down_bias = call->data[kQMoEDownBias];
    return FillExperts(tensors.shape, call, args);
  }
};

}  // namespace

const Backend kCUDAQMoE = MakeBackend<QMoEKernel>(kCUDAProvider);

}  // namespace mojo
