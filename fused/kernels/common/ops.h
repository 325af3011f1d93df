// The ops of domain "mojo", version 1: element types, attributes and shape rules.
//
// Everything here holds for every device. docs/kernels.md has the table of types.
#ifndef MOJO_KERNELS_COMMON_OPS_H_
#define MOJO_KERNELS_COMMON_OPS_H_

#include <initializer_list>

#include "common/op.h"

namespace mojo {

// RMSNorm(X:T, scale:S) -> Y.
//   inv = 1/sqrt(mean(float32(X)^2 over the dims from axis on) + epsilon), n = float32(X)*inv
//   scale_after_cast=0: Y:T = round_T(n * float32(scale));  1: Y:S = round_S(round_S(n) * scale)
extern const OpDef kRMSNorm;

// AddRMSNorm(X:T, residual:T, scale:S) -> Y, sum:T.  sum = round_T(X + residual), Y = RMSNorm(sum).
extern const OpDef kAddRMSNorm;

// GLU(gate:T, up:T) -> Y:T.  Y = round_T(round_T(activation(gate)) * round_T(up + up_offset)).
extern const OpDef kGLU;

// RotaryEmbedding(X:T, cos:T, sin:T) -> Y:T.  Rotates pairs of the first or the last rotary_dim
// channels; docs/ops.md has the formula.
extern const OpDef kRotaryEmbedding;

// NormRotary(X:T, scale:S, cos:N, sin:N) -> Y:N.  Y = RotaryEmbedding(RMSNorm(X, scale)), the norm over the last
// dimension, with the roundings of both; N is the type of the norm's result.
extern const OpDef kNormRotary;

// The inputs of NormRotary.
enum NormRotaryInput { kNormRotaryX, kNormRotaryScale, kNormRotaryCos, kNormRotarySin };

// TopKRouter(logits:T, correction_bias:B optional) -> weights:float32, ids:int64.  Scores the experts
// and chooses k of them for each row of logits; docs/ops.md has the formula.
extern const OpDef kTopKRouter;

// MoE(X:T, weights:W, ids:int64, gate_up:V, down:V, gate_up_bias:V optional, down_bias:V optional) ->
// Y:T.  Y[t] = round_T(sum over j of weights[t,j] * expert ids[t,j] of X[t]); docs/ops.md has the
// formula. W is float32 or T.
extern const OpDef kMoE;

// The inputs of MoE.
enum MoEInput { kMoEX, kMoEWeights, kMoEIds, kMoEGateUp, kMoEDown, kMoEGateUpBias, kMoEDownBias };

// RMSNormAttributes are the attributes of RMSNorm and AddRMSNorm.
struct RMSNormAttributes {
  int64_t axis;  // negative
  float epsilon;
  bool scale_after_cast;
};

// Activation is the attribute activation of GLU, which has none of the ReLUs, and of MoE.
enum class Activation { kSilu, kGelu, kGeluTanh, kRelu, kReluSquared };

// GLUAttributes are the attributes of GLU, and those that MoE has in common with it.
struct GLUAttributes {
  Activation activation;
  float alpha;
  float limit;  // 0: none
  float up_offset;
};

// RotaryEmbeddingAttributes are the attributes of RotaryEmbedding.
struct RotaryEmbeddingAttributes {
  bool interleaved;  // the pairs in X
  int64_t rotary_dim;
  bool last;                // rotated_side
  bool output_interleaved;  // the pairs in Y
};

// NormRotaryAttributes are the attributes of NormRotary.
struct NormRotaryAttributes {
  float epsilon;
  bool scale_after_cast;
  RotaryEmbeddingAttributes rotary;
};

// Score is the attribute score of TopKRouter.
enum class Score { kSoftmax, kSigmoid, kSqrtSoftplus };

// RouterAttributes are the attributes of TopKRouter.
struct RouterAttributes {
  int64_t top_k;
  Score score;
  bool top_k_first;  // order
  int64_t groups;    // 1: none
  int64_t group_top_k;
  bool top2_sum;         // group_score; else max
  float excluded_score;  // 0 or minus infinity
  bool renormalize;
  float epsilon;
  float scale;
};

// Packing is MoE's attribute packing: how the first product holds the gate and up.
enum class Packing { kHalves, kInterleaved, kNone };

// MoEAttributes are the attributes of MoE.
struct MoEAttributes {
  GLUAttributes gate;
  Packing packing;
  bool gate_up_in_out;  // gate_up is [E, H, 2I]; else [E, 2I, H]
  bool down_in_out;     // down is [E, I, H]; else [E, H, I]
};

// The readers return an error that names the node, the attribute, what was found and what is
// expected.
OrtStatus* ReadAttributes(const KernelInit& init, RMSNormAttributes* out);
OrtStatus* ReadAttributes(const KernelInit& init, GLUAttributes* out);
OrtStatus* ReadAttributes(const KernelInit& init, RotaryEmbeddingAttributes* out);
OrtStatus* ReadAttributes(const KernelInit& init, NormRotaryAttributes* out);
OrtStatus* ReadAttributes(const KernelInit& init, RouterAttributes* out);
OrtStatus* ReadAttributes(const KernelInit& init, MoEAttributes* out);

// SplitAtAxis gives rows (product of the dims before axis) and width (product of those from axis
// on); axis is negative, and an error where X has fewer dims.
OrtStatus* SplitAtAxis(const Api& api, const OpDef& def, const Shape& x, int64_t axis, size_t* rows, size_t* width);

// CheckScale checks that scale has the shape X.shape[axis:].
OrtStatus* CheckScale(const Api& api, const OpDef& def, const Shape& x, int64_t axis, const Shape& scale);

// CheckSame checks that two inputs have one shape.
OrtStatus* CheckSame(const Api& api, const OpDef& def, const char* a_name, const Shape& a, const char* b_name,
                     const Shape& b);

// RotaryLayout is how cos and sin lie against X: the dims of X before the last, merged where that
// changes nothing, and the step, in elements, of cos and sin along each (0 where broadcast).
struct RotaryLayout {
  size_t rank = 0;  // merged dims, at least 1
  size_t dims[kMaxRank];
  size_t cos_step[kMaxRank];
  size_t sin_step[kMaxRank];
  size_t rows = 0;        // product of dims
  size_t width = 0;       // last dim of X
  size_t first = 0;       // the first channel that is rotated
  size_t rotated = 0;     // how many are
  bool cos_wide = false;  // an element for each of them, rather than for each pair
  bool sin_wide = false;
};

// LayOutRotary checks the shapes against the broadcasting rule and the attributes.
OrtStatus* LayOutRotary(const Api& api, const OpDef& def, const RotaryEmbeddingAttributes& attributes, const Shape& x,
                        const Shape& cos, const Shape& sin, RotaryLayout* out);

// RouterTensors are the tensors of a running TopKRouter, and their sizes.
struct RouterTensors {
  const void* logits = nullptr;  // [rows, experts]
  const void* bias = nullptr;    // [experts]; null where it is left out
  float* weights = nullptr;      // [rows, top_k]
  int64_t* ids = nullptr;        // [rows, top_k]
  size_t rows = 0;
  size_t experts = 0;
};

// ReadRouter reads the inputs of a running node, checks their shapes against each other and the attributes,
// and allocates the outputs.
OrtStatus* ReadRouter(const Api& api, OrtKernelContext* context, const RouterAttributes& attributes,
                      RouterTensors* out);

// MoEShape are the sizes of a MoE.
struct MoEShape {
  size_t tokens = 0;
  size_t k = 0;  // experts of a token
  size_t experts = 0;
  size_t hidden = 0;  // width of X and Y
  size_t inner = 0;   // width of what is activated
  size_t packed = 0;  // width of the first product: 2 * inner, or inner where there is no gate
};

// ReadMoE reads the inputs of a running node, in the order of MoEInput, and checks their shapes against
// each other and the attributes. The data of an optional input that is left out is null.
OrtStatus* ReadMoE(const Api& api, OrtKernelContext* context, const MoEAttributes& attributes,
                   const void* data[kMaxInputs], Shape shapes[kMaxInputs], MoEShape* out);

// AttributeReader reads the attributes of a node for the readers above. The first failure is kept in
// status, later reads do nothing.
struct AttributeReader {
  const KernelInit& init;
  OrtStatus* status = nullptr;

  explicit AttributeReader(const KernelInit& i) : init(i) {}
  int64_t Int(const char* name);
  float Float(const char* name);
  void String(const char* name, char* out, size_t size);
  // Choice gives which of the values a string is.
  size_t Choice(const char* name, std::initializer_list<const char*> values);
  // Flag is an int that must be 0 or 1.
  bool Flag(const char* name);
  // Fail reports the attribute's value as wrong; found and expected are given as text.
  void Fail(const char* name, const char* found, const char* expected);
  void FailInt(const char* name, int64_t found, const char* expected);
  void FailFloat(const char* name, float found, const char* expected);
};

// ReadGate reads alpha, limit and up_offset, once activation is known.
void ReadGate(AttributeReader* read, GLUAttributes* out);

// ReadNorm reads epsilon and scale_after_cast, of an op whose scale is input number scale.
void ReadNorm(AttributeReader* read, size_t scale, float* epsilon, bool* scale_after_cast);

// ReadRotary reads the attributes of a rotation of X, and checks them against its last dimension where the
// model fixes that.
void ReadRotary(AttributeReader* read, RotaryEmbeddingAttributes* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_OPS_H_
