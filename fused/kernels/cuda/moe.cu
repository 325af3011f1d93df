// MoE: which way a call takes, from its shapes and types alone.
#include <algorithm>

#include "cuda/moe.cuh"

using mojo::GenericMoE;
using mojo::SmallMoE;
using mojo::TiledMoE;

namespace {

// HasChoices tells whether anything is multiplied.
bool HasChoices(const MojoMoEArgs& a) { return a.tokens > 0 && a.top_k > 0 && a.experts > 0; }

}  // namespace

// The pointers may not be known yet, and their alignment decides: enough for each way that the shapes allow.
size_t MojoMoEScratch(const MojoMoEArgs* args) {
  MojoMoEArgs a = *args;
  a.x = a.gate_up = a.down = a.y = nullptr;
  if (!HasChoices(a)) return 0;
  size_t bytes = mojo::GenericMoEScratch(a);
  if (mojo::SmallMoETakes(a)) bytes = std::max(bytes, mojo::SmallMoEScratch(a));
  if (mojo::TiledMoETakes(a)) bytes = std::max(bytes, mojo::TiledMoEScratch(a));
  return bytes;
}

cudaError_t MojoCudaMoE(const MojoMoEArgs* args, cudaStream_t stream) {
  const MojoMoEArgs& a = *args;
  if (a.tokens == 0 || a.hidden == 0) return cudaSuccess;
  if (HasChoices(a)) {
    if (mojo::SmallMoETakes(a)) return SmallMoE(a, stream);
    if (mojo::TiledMoETakes(a)) return TiledMoE(a, stream);
  }
  return GenericMoE(a, stream);
}
