// One run of MoE on the CPU, once its inputs are known to be right.
#ifndef MOJO_KERNELS_CPU_MOE_RUN_H_
#define MOJO_KERNELS_CPU_MOE_RUN_H_

#include "common/ort.h"
#include "cpu/scratch.h"
#include "cpu/simd/kernels.h"

namespace mojo {

// ExpertWeights is one matrix per expert, one after the other, and perhaps a bias for each.
struct ExpertWeights {
  const void* data;
  const void* bias;  // null: none
  bool by_rows;      // out_in
};

// MoEArgs is what a run computes with. Buffers are dense.
struct MoEArgs {
  ElementType x_type;  // of x and y
  ElementType weights_type;
  ElementType expert_type;  // of gate_up, down and their biases
  const void* x;            // [tokens, hidden]
  const void* weights;      // [tokens, top_k]
  const int64_t* ids;       // [tokens, top_k], each an expert
  ExpertWeights gate_up;
  ExpertWeights down;
  void* y;  // [tokens, hidden]
  size_t tokens;
  size_t top_k;
  size_t experts;
  size_t hidden;
  size_t inner;
  bool gated;        // there are gate and up; otherwise one product, activated as a whole
  bool interleaved;  // gate and up by turns, not one after the other
  GateKind activation;
  float alpha;
  float limit;
  float up_offset;
  size_t scratch_bytes;  // what tokens beyond this need waits for a second go, which reads the weights again
};

// RunMoE computes y. Scratch memory comes from memory and goes back to it.
OrtStatus* RunMoE(const Api& api, OrtKernelContext* context, const HostMemory& memory, const MoEArgs& args);

}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_MOE_RUN_H_
