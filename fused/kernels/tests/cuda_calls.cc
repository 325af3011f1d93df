#include "tests/cuda_calls.h"

#include "tests/any_launch.h"
#include "tests/stand_in.h"

namespace mojo_test {

Call call;
bool added;
cudaError_t gives = cudaSuccess;
size_t wants = 64;

namespace {

cudaError_t Keep(cudaStream_t stream) {
  ++call.count;
  call.stream = stream;
  call.live = live_objects;
  return gives;
}

template <class T>
cudaError_t Keep(T* kept, const T* args, cudaStream_t stream) {
  *kept = *args;
  return Keep(stream);
}

}  // namespace

cudaError_t Launched(cudaStream_t stream) { return Keep(stream); }

}  // namespace mojo_test

using namespace mojo_test;

extern "C" {
cudaError_t MojoCudaRMSNorm(const MojoRMSNormArgs* a, cudaStream_t s) { return added = false, Keep(&call.norm, a, s); }
cudaError_t MojoCudaAddRMSNorm(const MojoRMSNormArgs* a, cudaStream_t s) {
  return added = true, Keep(&call.norm, a, s);
}
cudaError_t MojoCudaGLU(const MojoGLUArgs* a, cudaStream_t s) { return Keep(&call.glu, a, s); }
cudaError_t MojoCudaRotaryEmbedding(const MojoRotaryArgs* a, int count, cudaStream_t s) {
  return count == 1 ? Keep(&call.rotary, a, s) : cudaErrorInvalidValue;
}
cudaError_t MojoCudaNormRotary(const MojoNormRotaryArgs* a, int count, cudaStream_t s) {
  return count == 1 ? Keep(&call.norm_rotary, a, s) : cudaErrorInvalidValue;
}
size_t MojoTopKRouterScratch(const MojoTopKRouterArgs*) { return wants; }
cudaError_t MojoCudaTopKRouter(const MojoTopKRouterArgs* a, cudaStream_t s) { return Keep(&call.router, a, s); }
size_t MojoMoEScratch(const MojoMoEArgs*) { return wants; }
cudaError_t MojoCudaMoE(const MojoMoEArgs* a, cudaStream_t s) { return Keep(&call.moe, a, s); }
// Takes accepts the library's choice, tiles of 64, and kMojoFew for up to 8 tokens.
int Takes(const MojoMoEArgs& a) {
  const MojoMoEConfig& c = a.config;
  return c.kernel == kMojoAnyKernel || (c.kernel == kMojoFew ? a.tokens <= 8 : c.tile == 64);
}
int MojoMoETakes(const MojoMoEArgs* a) { return Takes(*a); }
int MojoQMoETakes(const MojoQMoEArgs* a) { return Takes(a->moe); }
int MojoCudaCapability(void) { return 90; }
size_t MojoAttentionScratch(const MojoAttentionArgs*) { return wants; }
cudaError_t MojoCudaAttention(const MojoAttentionArgs* a, cudaStream_t s) { return Keep(&call.attention, a, s); }
size_t MojoLinearScratch(const MojoLinearArgs*) { return wants; }
int MojoCudaMultipliesE4M3(mojo::Packing packing) { return packing != mojo::Packing::kNone; }
cudaError_t MojoCudaLinear(const MojoLinearArgs* a, cudaStream_t s) { return Keep(&call.linear, a, s); }
cudaError_t MojoCudaEmbedding(const MojoEmbeddingArgs* a, cudaStream_t s) { return Keep(&call.embedding, a, s); }
size_t MojoQMoEScratch(const MojoQMoEArgs*) { return wants; }
cudaError_t MojoCudaQMoE(const MojoQMoEArgs* a, cudaStream_t s) { return Keep(&call.qmoe, a, s); }
size_t MojoLatentAttentionScratch(const MojoLatentAttentionArgs*) { return wants; }
cudaError_t MojoCudaLatentAttention(const MojoLatentAttentionArgs* a, cudaStream_t s) {
  return Keep(&call.latent, a, s);
}
}
