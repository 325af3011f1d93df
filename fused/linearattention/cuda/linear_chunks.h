// LinearAttention in chunks of 64 tokens on tensor cores. linear_chunks.cu says more.
#pragma once

#include "cuda/mojo_cuda.h"

namespace mojo {

// RunsInChunks reports whether the chunked kernels take a call: many tokens of 16-bit numbers, at most one decay for
// each head or beta, up to 128 keys, and no more heads of q than of v.
bool RunsInChunks(const MojoLinearAttentionArgs& args);

// ChunkScratch is how many bytes of scratch memory such a call needs.
size_t ChunkScratch(const MojoLinearAttentionArgs& args);

cudaError_t RunChunks(const MojoLinearAttentionArgs& args, cudaStream_t stream);

}  // namespace mojo
