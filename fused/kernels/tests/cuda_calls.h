// Replacements for the CUDA kernels, which keep their arguments.
#pragma once

#include "cuda/mojo_cuda.h"

namespace mojo_test {

// Call is a call of a kernel.
struct Call {
  int count = 0;
  cudaStream_t stream = nullptr;
  int live = 0;  // objects of the stand-in at that time
  MojoRMSNormArgs norm;
  MojoGLUArgs glu;
  MojoRotaryArgs rotary;
  MojoNormRotaryArgs norm_rotary;
  MojoTopKRouterArgs router;
  MojoMoEArgs moe;
  MojoAttentionArgs attention;
  MojoLatentAttentionArgs latent;
  MojoLinearArgs linear;
  MojoEmbeddingArgs embedding;
  MojoQMoEArgs qmoe;
};

extern Call call;          // the last one
extern bool added;         // AddRMSNorm was called
extern cudaError_t gives;  // the result of the kernels
extern size_t wants;       // the bytes of scratch memory that they ask for

}  // namespace mojo_test
