// One run of MoE on the CPU, once its inputs are known to be right.
#pragma once

#include "moe/cpu/experts.h"

namespace mojo {

// ExpertWeights is one matrix per expert, one after the other, and perhaps a bias for each.
struct ExpertWeights {
  const void* data;
  const void* bias;  // may be null
  bool by_rows;      // out_in
};

// MoEArgs are the arguments of a run.
struct MoEArgs : ExpertArgs {
  ElementType expert_type = kFloat32;  // of gate_up, down and their biases
  ExpertWeights gate_up{};
  ExpertWeights down{};
  const BFloatFns* bfloat = nullptr;  // rounds the operands of products with weights in bfloat16; null: exact
};

// RunMoE computes y. Scratch memory comes from memory and goes back to it.
OrtStatus* RunMoE(const Api& api, OrtKernelContext* context, const HostMemory& memory, const MoEArgs& args);

}  // namespace mojo
