// Inputs and shape rules of GatedRMSNorm.
#ifndef MOJO_KERNELS_COMMON_GATED_RMS_NORM_H_
#define MOJO_KERNELS_COMMON_GATED_RMS_NORM_H_

#include "common/rms_norm.h"

namespace mojo {

// GatedRMSNormTensors are the tensors of a running GatedRMSNorm, and their sizes.
struct GatedRMSNormTensors {
  const void* x = nullptr;
  const void* gate = nullptr;
  const void* scale = nullptr;
  void* y = nullptr;
  size_t rows = 0;   // groups of all tokens
  size_t width = 0;  // of a group
};

// ReadGatedRMSNorm reads the inputs of a running node, checks their shapes and allocates the output.
inline OrtStatus* ReadGatedRMSNorm(const Api& api, OrtKernelContext* context, const GatedRMSNormAttributes& attributes,
                                   GatedRMSNormTensors* out) {
  const OpDef& def = kGatedRMSNorm;
  Shape x, gate, scale;
  if (OrtStatus* s = ReadInput(api, context, def, kGatedRMSNormX, &out->x, &x)) return s;
  if (OrtStatus* s = ReadInput(api, context, def, kGatedRMSNormGate, &out->gate, &gate)) return s;
  if (OrtStatus* s = ReadInput(api, context, def, kGatedRMSNormScale, &out->scale, &scale)) return s;
  if (OrtStatus* s = CheckSame(api, def, "X", x, "gate", gate)) return s;
  size_t tokens, channels;
  if (OrtStatus* s = SplitAtAxis(api, def, x, -1, &tokens, &channels)) return s;
  const auto groups = static_cast<size_t>(attributes.groups);
  if (channels % groups != 0) {
    return Errorf(api, "mojo.%s: X has shape %s; groups is %zu and must divide the last dimension", def.name,
                  ShapeText(x).text, groups);
  }
  const bool row = scale.rank == 1;
  const bool grid = scale.rank == 2 && static_cast<size_t>(scale.dims[0]) == groups;
  if (!(row || grid) || scale.Count() != channels) {
    return Errorf(api, "mojo.%s: scale has shape %s and X %s; with %zu groups scale must be [%zu] or [%zu,%zu]",
                  def.name, ShapeText(scale).text, ShapeText(x).text, groups, channels, groups, channels / groups);
  }
  out->rows = tokens * groups;
  out->width = channels / groups;
  return MakeOutput(api, context, def, 0, x, &out->y);
}

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_GATED_RMS_NORM_H_
