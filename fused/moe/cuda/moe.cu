// MoE: chooses a call's kernels, only from its shapes and types.
#include <algorithm>

#include "moe/cuda/moe.cuh"

using mojo::GenericMoE;
using mojo::SmallMoE;
using mojo::TiledMoE;

namespace {

// HasChoices reports whether there is anything to multiply.
bool HasChoices(const MojoMoEArgs& a) { return a.tokens > 0 && a.top_k > 0 && a.experts > 0; }

// IsSmall and IsTiled report which kernels a call takes. Its config overrides the usual choice.
bool IsSmall(const MojoMoEArgs& a) {
  const bool is = a.config.kernel == kMojoAnyKernel || a.config.kernel == kMojoFew;
  return is && HasChoices(a) && mojo::SmallMoETakes(a);
}
bool IsTiled(const MojoMoEArgs& a) {
  return a.config.kernel != kMojoFew && HasChoices(a) && !IsSmall(a) && mojo::TiledMoETakes(a);
}

}  // namespace

int MojoMoETakes(const MojoMoEArgs* args) {
  const MojoMoEArgs& a = *args;
  if (a.config.split != 0) return 0;
  switch (a.config.kernel) {
    case kMojoAnyKernel: return a.config.tile == 0;
    case kMojoFew: return a.config.tile == 0 && IsSmall(a);
    default: return IsTiled(a);
  }
}

// The pointers may not be known yet, and their alignment matters: enough for any kernel that the shapes allow.
size_t MojoMoEScratch(const MojoMoEArgs* args) {
  MojoMoEArgs a = *args;
  a.x = a.gate_up = a.down = a.y = nullptr;
  if (!HasChoices(a)) return 0;
  size_t bytes = mojo::GenericMoEScratch(a);
  if (IsSmall(a)) bytes = std::max(bytes, mojo::SmallMoEScratch(a));
  if (IsTiled(a)) bytes = std::max(bytes, mojo::TiledMoEScratch(a));
  return bytes;
}

cudaError_t MojoCudaMoE(const MojoMoEArgs* args, cudaStream_t stream) {
  const MojoMoEArgs& a = *args;
  if (a.tokens == 0 || a.hidden == 0) return cudaSuccess;
  if (IsSmall(a)) return SmallMoE(a, stream);
  if (IsTiled(a)) return TiledMoE(a, stream);
  return GenericMoE(a, stream);
}
