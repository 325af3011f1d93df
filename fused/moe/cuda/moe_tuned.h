// The tables of a node of MoE or QMoE.
#ifndef MOJO_KERNELS_CUDA_MOE_TUNED_H_
#define MOJO_KERNELS_CUDA_MOE_TUNED_H_

#include "cuda/backends.h"
#include "moe/cuda/moe_tables.h"

namespace mojo {

// TunedMoE chooses configs for the calls of one node. Immutable after Read.
class TunedMoE {
 public:
  // Read reads the tables (moe_tables.h), and keeps those for the node's format and layout. It returns an error if the
  // kernels lack a config: takes reports whether they take a call of a shape and number of tokens with a config. A node
  // whose format has no tables passes an empty format.
  OrtStatus* Read(const KernelInit& init, const char* format, bool in_out,
                  const std::function<bool(const MoETableShape&, size_t tokens, const MojoMoEConfig&)>& takes);

  // Choose writes a config into a call; takes reports whether the kernels take it.
  void Choose(MojoMoEArgs* call, const TakesMoEConfig& takes) const;

 private:
  MoETableShape shape_;  // without sizes
  int capability_ = 0;
  std::vector<MoETable> tables_;
};

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_MOE_TUNED_H_
