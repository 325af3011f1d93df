// LinearAttention in chunks of 64 tokens on tensor cores. linear_chunks.cu says more.
#ifndef MOJO_KERNELS_CUDA_LINEAR_CHUNKS_H_
#define MOJO_KERNELS_CUDA_LINEAR_CHUNKS_H_

#include "cuda/mojo_cuda.h"

namespace mojo {

// RunsInChunks reports whether the chunked kernels take a call: many tokens of 16-bit numbers, at most one decay for
// each head, up to 128 keys, and no more heads of q than of v.
bool RunsInChunks(const MojoLinearAttentionArgs& args);

// ChunkScratch is how many bytes of scratch memory such a call needs.
size_t ChunkScratch(const MojoLinearAttentionArgs& args);

cudaError_t RunChunks(const MojoLinearAttentionArgs& args, cudaStream_t stream);

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_LINEAR_CHUNKS_H_
