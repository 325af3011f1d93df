// The tables of a node of MoE or QMoE.
#ifndef MOJO_KERNELS_CUDA_MOE_TUNED_H_
#define MOJO_KERNELS_CUDA_MOE_TUNED_H_

#include "cuda/backends.h"
#include "cuda/moe_tables.h"

namespace mojo {

// TunedMoE chooses how the calls of one node go. Immutable after Read.
class TunedMoE {
 public:
  // Read reads the tables (moe_tables.h), keeps those of the node's format and layout, and errs where one has what the
  // kernels lack: takes reports whether they take a call of that shape, with so many tokens, by a config. Nodes of no
  // format that there are tables for have an empty one.
  OrtStatus* Read(const KernelInit& init, const char* format, bool in_out,
                  const std::function<bool(const MoETableShape&, size_t tokens, const MojoMoEConfig&)>& takes);

  // Choose writes into a call how it goes; takes reports whether the kernels take it so.
  void Choose(MojoMoEArgs* call, const TakesMoEConfig& takes) const;

 private:
  MoETableShape shape_;  // without sizes
  int capability_ = 0;
  std::vector<MoETable> tables_;
};

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_MOE_TUNED_H_
