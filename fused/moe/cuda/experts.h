// The code that the backends of MoE and QMoE share on CUDA. They differ in how they read weights.
#pragma once

#include "cuda/backends.h"
#include "moe/common/moe.h"
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

  // Choose returns the config for a call; takes reports whether the kernels take it.
  MojoMoEConfig Choose(const MojoMoEArgs& call, const TakesMoEConfig& takes) const;

 private:
  MoETableShape shape_;  // without sizes
  int capability_ = 0;
  std::vector<MoETable> tables_;
};

// MoEOf is the part of the arguments that both ops have.
inline MojoMoEArgs& MoEOf(MojoMoEArgs& args) { return args; }
inline MojoMoEArgs& MoEOf(MojoQMoEArgs& args) { return args.moe; }

// ExpertsKernel is the state of one node of MoE or QMoE. kTakes reports whether the kernels take a call. Kernel has
// SetForm(&args), which writes what follows from the node alone into args, except the types that both ops have.
template <class Kernel, class Call, class Args, auto kLaunch, auto kScratch, auto kTakes,
          class Attributes = typename Call::Attributes>
struct ExpertsKernel : CUDAKernel<Kernel, Call, Args, kLaunch, kScratch, Attributes> {
  TunedMoE tuned;

  // ReadTables reads the tables for the node. has reports whether experts of a table's shape may be the node's.
  template <class Has>
  OrtStatus* ReadTables(const KernelInit& init, const char* format, bool in_out, const Has& has) {
    return tuned.Read(init, format, in_out, [&](const MoETableShape& s, size_t tokens, const MojoMoEConfig& config) {
      if (!has(s)) return true;
      Args args{};
      static_cast<const Kernel*>(this)->SetForm(&args);
      SetSizes({tokens, s.top_k, s.experts, s.hidden, s.inner, 0}, &MoEOf(args));
      MoEOf(args).config = config;
      return kTakes(&args) != 0;
    });
  }

  // FillExperts completes args, which has the form, the matrices and their biases. It does not check the ids as the CPU
  // backend does: they are on the device, and waiting for them would stop the stream. The kernels skip invalid ids, as
  // they skip kNoExpert.
  OrtStatus* FillExperts(const MoEShape& shape, Call* call, Args* args) const {
    static_assert(int{kMoEX} == int{kQMoEX} && int{kMoEWeights} == int{kQMoEWeights} && int{kMoEIds} == int{kQMoEIds},
                  "both ops begin with the same inputs");
    MojoMoEArgs& moe = MoEOf(*args);
    moe.x = call->data[kMoEX];
    moe.weights = call->data[kMoEWeights];
    moe.ids = call->template Get<int64_t>(kMoEIds);
    SetSizes(shape, &moe);
    moe.config = tuned.Choose(moe, [args](const MojoMoEConfig& config) {
      Args call = *args;
      MoEOf(call).config = config;
      return kTakes(&call) != 0;
    });
    return call->Make(0, &moe.y);
  }

 private:
  void SetSizes(const MoEShape& shape, MojoMoEArgs* moe) const {
    moe->x_type = this->Input(kMoEX);
    moe->weights_type = this->Input(kMoEWeights);
    moe->tokens = shape.tokens;
    moe->top_k = shape.k;
    moe->experts = shape.experts;
    moe->hidden = shape.hidden;
    moe->inner = shape.inner;
  }
};

}  // namespace mojo
