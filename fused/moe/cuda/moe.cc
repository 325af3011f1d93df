// MoE on CUDA.
#include "moe/cuda/experts.h"

namespace mojo {
namespace {

// MoEKernel is the state of one node.
struct MoEKernel : ExpertsKernel<MoEKernel, MoECall, MojoMoEArgs, MojoCudaMoE, MojoMoEScratch, MojoMoETakes> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = CUDAKernel::Init(init)) return s;
    const MojoType x = Input(kMoEX);
    const bool has = x == Input(kMoEGateUp) && attributes.gate_up_in_out == attributes.down_in_out;
    const char* format = has && x == kMojoBFloat16 ? "bfloat16" : has && x == kMojoFloat16 ? "float16" : "";
    return ReadTables(init, format, attributes.gate_up_in_out, [](const MoETableShape&) { return true; });
  }

  void SetForm(MojoMoEArgs* args) const {
    args->gate = attributes.gate;
    args->packing = attributes.packing;
    args->gate_up_in_out = attributes.gate_up_in_out;
    args->down_in_out = attributes.down_in_out;
    args->expert_type = Input(kMoEGateUp);
  }

  OrtStatus* Fill(MoECall* call, MojoMoEArgs* args) const {
    SetForm(args);
    args->gate_up = call->data[kMoEGateUp];
    args->down = call->data[kMoEDown];
    args->gate_up_bias = call->data[kMoEGateUpBias];
    args->down_bias = call->data[kMoEDownBias];
    return FillExperts(ShapeOf(call->sizes), call, args);
  }
};

}  // namespace

const Backend kCUDAMoE = MakeBackend<MoEKernel>(kCUDAProvider);

}  // namespace mojo
