// Inputs and shape rules of AddLayerNorm.
#ifndef MOJO_KERNELS_COMMON_ADD_LAYER_NORM_H_
#define MOJO_KERNELS_COMMON_ADD_LAYER_NORM_H_

#include "common/rms_norm.h"

namespace mojo {

// ReadRow reads input number index of the running node, an element for each channel of X. Data is null if the node
// leaves out an optional input.
inline OrtStatus* ReadRow(const Api& api, OrtKernelContext* context, const OpDef& def, size_t index, const Shape& x,
                          const void** data) {
  Shape row;
  const auto read = index < def.required_inputs ? ReadInput : ReadOptionalInput;
  if (OrtStatus* s = read(api, context, def, index, data, &row)) return s;
  if (*data != nullptr && (row.rank != 1 || row.dims[0] != x.dims[x.rank - 1])) {
    return Errorf(api, "mojo.%s: %s has shape %s and X %s; %s must have an element for each channel of X", def.name,
                  def.input_names[index], ShapeText(row).text, ShapeText(x).text, def.input_names[index]);
  }
  return nullptr;
}

// ReadRows reads X and returns rows and width of it; X without dimensions is an error.
inline OrtStatus* ReadRows(const Api& api, OrtKernelContext* context, const OpDef& def, const void** data, Shape* x,
                           size_t* rows, size_t* width) {
  if (OrtStatus* s = ReadInput(api, context, def, 0, data, x)) return s;
  if (x->rank == 0) return Errorf(api, "mojo.%s: X has no dimensions; it must have at least 1", def.name);
  return SplitAtAxis(api, def, *x, -1, rows, width);
}

// AddLayerNormTensors are the tensors of a running AddLayerNorm, and their sizes.
struct AddLayerNormTensors {
  const void* x = nullptr;
  const void* residual = nullptr;
  const void* scale = nullptr;
  const void* bias = nullptr;
  const void* x_bias = nullptr;  // null: none
  void* y = nullptr;
  void* sum = nullptr;  // null: not read
  size_t rows = 0;
  size_t width = 0;
};

// ReadAddLayerNorm reads the inputs of a running node, checks their shapes and allocates the outputs.
inline OrtStatus* ReadAddLayerNorm(const Api& api, OrtKernelContext* context, AddLayerNormTensors* out) {
  const OpDef& def = kAddLayerNorm;
  Shape x, residual;
  if (OrtStatus* s = ReadRows(api, context, def, &out->x, &x, &out->rows, &out->width)) return s;
  if (OrtStatus* s = ReadInput(api, context, def, kAddLayerNormResidual, &out->residual, &residual)) return s;
  if (OrtStatus* s = CheckSame(api, def, "X", x, "residual", residual)) return s;
  if (OrtStatus* s = ReadRow(api, context, def, kAddLayerNormScale, x, &out->scale)) return s;
  if (OrtStatus* s = ReadRow(api, context, def, kAddLayerNormBias, x, &out->bias)) return s;
  if (OrtStatus* s = ReadRow(api, context, def, kAddLayerNormXBias, x, &out->x_bias)) return s;
  if (OrtStatus* s = MakeOutput(api, context, def, 0, x, &out->y)) return s;
  return MakeOutput(api, context, def, 1, x, &out->sum);
}

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_ADD_LAYER_NORM_H_
