/* The CUDA kernels of the fused ops on raw device pointers and a stream, without onnxruntime.
 *
 * docs/ops.md defines what each op computes. Every function only launches kernels: it allocates nothing,
 * waits for nothing and reads nothing back, so a call can be captured into a CUDA graph. Zero rows or
 * tokens launch nothing. All tensors are dense and row-major; pointers need only the alignment of their
 * element (16 bytes are faster). Grids follow from the arguments alone, and results repeat bit for bit.
 */
#ifndef MOJO_KERNELS_CUDA_MOJO_CUDA_H_
#define MOJO_KERNELS_CUDA_MOJO_CUDA_H_

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "attention/common/attention_tensors.h"
#include "linearattention/common/linear_tensors.h"
#include "moe/cuda/moe_config.h"

extern "C" {

/* MojoType is the element type of a tensor, in the order of the CPU kernels' ElementType. */
typedef enum { kMojoFloat32, kMojoFloat16, kMojoBFloat16 } MojoType;

/* MojoActivation is what a gate goes through; GLU has none of the ReLUs. */
typedef enum {
  kMojoSilu, /* g * sigmoid(alpha * g) */
  kMojoGelu,
  kMojoGeluTanh,
  kMojoRelu,
  kMojoReluSquared
} MojoActivation;

/* MojoPacking is where gate and up lie in the first product of a MoE. */
typedef enum { kMojoHalves, kMojoInterleaved, kMojoNoGate } MojoPacking;

/* MojoScore is what a router makes of logits. */
typedef enum { kMojoSoftmax, kMojoSigmoid, kMojoSqrtSoftplus } MojoScore;

/* The most leading dimensions of a tensor that broadcasts. */
#define MOJO_MAX_DIMS 16
/* The most tensors that one launch of RotaryEmbedding or NormRotary takes: q and k. */
#define MOJO_MAX_TENSORS 2

/* MojoRMSNormArgs is one RMSNorm or AddRMSNorm. The type of y is x_type, or scale_type with
 * scale_after_cast. y may be x, and sum may be x and y residual. */
typedef struct {
  const void* x;        /* [rows, width] */
  const void* residual; /* AddRMSNorm: [rows, width] of x_type; RMSNorm: ignored */
  const void* scale;    /* [width] */
  void* y;              /* [rows, width] */
  void* sum;            /* AddRMSNorm: [rows, width] of x_type, or null where nobody reads it; never y */
  size_t rows;
  size_t width;
  float epsilon;
  int scale_after_cast;
  MojoType x_type;
  MojoType scale_type;
} MojoRMSNormArgs;

cudaError_t MojoCudaRMSNorm(const MojoRMSNormArgs* args, cudaStream_t stream);
cudaError_t MojoCudaAddRMSNorm(const MojoRMSNormArgs* args, cudaStream_t stream);

/* MojoGatedRMSNormArgs is one GatedRMSNorm of rows of width elements, each a group. y, of the type of gate, may be x
 * where that has the same type, or gate. x of another type than gate is float32. */
typedef struct {
  const void* x;     /* [rows, width] of x_type */
  const void* gate;  /* [rows, width] of gate_type */
  const void* scale; /* [groups, width] of scale_type: gate_type or float32 */
  void* y;           /* [rows, width] of gate_type */
  size_t rows;
  size_t width;
  size_t groups;
  int gate_first; /* the gate multiplies x; else the norm */
  float epsilon;
  int scale_after_cast; /* where all types are one */
  MojoType x_type;
  MojoType gate_type;
  MojoType scale_type;
} MojoGatedRMSNormArgs;

cudaError_t MojoCudaGatedRMSNorm(const MojoGatedRMSNormArgs* args, cudaStream_t stream);

/* MojoNormQuantizeArgs is one NormQuantize. scale_type is x_type or float32. y is int8, or float8e4m3fn with float8.
 * sum may be x or residual. */
typedef struct {
  const void* x;        /* [rows, width] of x_type */
  const void* residual; /* [rows, width] of x_type, or null */
  const void* scale;    /* [width] of scale_type */
  void* y;              /* [rows, width] */
  float* y_scale;       /* [rows] */
  void* sum;            /* [rows, width] of x_type, or null */
  size_t rows;
  size_t width;
  float epsilon;
  float least_scale;
  int scale_after_cast; /* only if scale_type is x_type */
  int float8;
  MojoType x_type;
  MojoType scale_type;
} MojoNormQuantizeArgs;

cudaError_t MojoCudaNormQuantize(const MojoNormQuantizeArgs* args, cudaStream_t stream);

/* MojoAddLayerNormArgs is one AddLayerNorm. x_type is y_type or float32. sum may be x, and y residual where both have
 * one type. */
typedef struct {
  const void* x;        /* [rows, width] of x_type */
  const void* residual; /* [rows, width] of x_type */
  const void* x_bias;   /* [width] of x_type, or null */
  const void* scale;    /* [width] of y_type */
  const void* bias;     /* [width] of y_type */
  void* y;              /* [rows, width] of y_type */
  void* sum;            /* [rows, width] of x_type, or null where nobody reads it; never y */
  size_t rows;
  size_t width;
  float epsilon;
  MojoType x_type;
  MojoType y_type;
} MojoAddLayerNormArgs;

cudaError_t MojoCudaAddLayerNorm(const MojoAddLayerNormArgs* args, cudaStream_t stream);

/* MojoGLUArgs is one GLU of count elements. y may be gate or up. */
typedef struct {
  const void* gate;
  const void* up;
  void* y;
  size_t count;
  MojoType type;
  MojoActivation activation;
  float alpha;
  float limit; /* 0: none */
  float up_offset;
} MojoGLUArgs;

cudaError_t MojoCudaGLU(const MojoGLUArgs* args, cudaStream_t stream);

/* MojoBiasGELUArgs is one BiasGELU. y may be x. */
typedef struct {
  const void* x;    /* [rows, width] */
  const void* bias; /* [width] */
  void* y;          /* [rows, width] */
  size_t rows;
  size_t width;
  MojoActivation activation; /* none of the ReLUs */
  float alpha;
  MojoType type;
} MojoBiasGELUArgs;

cudaError_t MojoCudaBiasGELU(const MojoBiasGELUArgs* args, cudaStream_t stream);

/* MojoLinearAttentionArgs is one LinearAttention. */
struct MojoLinearAttentionArgs : mojo::LinearAttentionTensors {
  float scale = 1;
  bool l2_norm = false;
  float epsilon = 0;
  MojoType type = kMojoFloat32; /* of q, k, v and y */
  void* scratch = nullptr;      /* MojoLinearAttentionScratch bytes */
};

/* MojoLinearAttentionScratch is how many bytes of scratch memory a call needs, 0 in most. */
size_t MojoLinearAttentionScratch(const MojoLinearAttentionArgs* args);
cudaError_t MojoCudaLinearAttention(const MojoLinearAttentionArgs* args, cudaStream_t stream);

/* MojoCausalConvArgs is one CausalConv. present may be past. */
typedef struct {
  const void* x;      /* [batch, channels, tokens] */
  const void* weight; /* [channels, width] */
  const void* bias;   /* [channels], or null */
  const void* past;   /* [batch, channels, kept], or null: zeros */
  void* y;            /* as x */
  void* present;      /* [batch, channels, kept], or null where nobody reads it */
  size_t batch, channels, tokens, width, kept;
  int silu;
  MojoType type;
} MojoCausalConvArgs;

cudaError_t MojoCudaCausalConv(const MojoCausalConvArgs* args, cudaStream_t stream);

/* MojoRotaryArgs is one RotaryEmbedding. dims are the dimensions of x before the last, outermost first,
 * merged where that changes nothing (LayOutRotary of rotary/common/rotary_embedding.h makes them); cos and sin move by
 * their step, in elements, along each, by 0 where they broadcast. y may be x where interleaved equals
 * output_interleaved. */
typedef struct {
  const void* x;
  const void* cos;
  const void* sin;
  void* y;
  MojoType type;
  int rank; /* of dims, 0 to MOJO_MAX_DIMS */
  size_t dims[MOJO_MAX_DIMS];
  size_t cos_step[MOJO_MAX_DIMS];
  size_t sin_step[MOJO_MAX_DIMS];
  size_t width;   /* last dimension of x */
  size_t first;   /* the first channel that is rotated */
  size_t rotated; /* how many are: even */
  int cos_wide;   /* cos has an element for each rotated channel; else for each pair */
  int sin_wide;
  int interleaved;        /* pairs in x are beside each other; else in two halves */
  int output_interleaved; /* the same for y */
} MojoRotaryArgs;

/* MojoCudaRotaryEmbedding does count tensors (at most MOJO_MAX_TENSORS), in one launch where their forms
 * are alike: q and k of an attention. None may overlap another's y. */
cudaError_t MojoCudaRotaryEmbedding(const MojoRotaryArgs* args, int count, cudaStream_t stream);

/* MojoNormRotaryArgs is RMSNorm over the last dimension of rotary.x, then RotaryEmbedding of the result,
 * each with the roundings of its op. The type of the norm's result is rotary.type (as of y, cos and sin);
 * where x_type is another one, it is float32 with scale_after_cast. rotary.y may be rotary.x where that is so for
 * RotaryEmbedding. */
typedef struct {
  MojoRotaryArgs rotary;
  const void* scale; /* [width] */
  float epsilon;
  int scale_after_cast;
  MojoType x_type;
  MojoType scale_type;
} MojoNormRotaryArgs;

cudaError_t MojoCudaNormRotary(const MojoNormRotaryArgs* args, int count, cudaStream_t stream);

/* MojoTopKRouterArgs is one TopKRouter. */
typedef struct {
  const void* logits; /* [rows, experts] */
  const void* bias;   /* [experts], or null */
  float* weights;     /* [rows, top_k] */
  int64_t* ids;       /* [rows, top_k] */
  void* scratch;      /* MojoTopKRouterScratch bytes, or null where those are 0 */
  size_t rows;
  size_t experts;
  size_t top_k;
  MojoType logits_type;
  MojoType bias_type;
  MojoScore score;
  int top_k_first;
  size_t groups;
  size_t group_top_k;
  int top2_sum; /* the score of a group; else its maximum */
  float excluded_score;
  int renormalize;
  float epsilon;
  float scale;
} MojoTopKRouterArgs;

/* MojoTopKRouterScratch gives the bytes of device memory a call needs; it reads no pointer of args. */
size_t MojoTopKRouterScratch(const MojoTopKRouterArgs* args);
cudaError_t MojoCudaTopKRouter(const MojoTopKRouterArgs* args, cudaStream_t stream);

/* MojoMoEArgs is one MoE. An id outside of 0..experts-1 adds nothing. */
typedef struct {
  const void* x;            /* [tokens, hidden] */
  const void* weights;      /* [tokens, top_k] */
  const int64_t* ids;       /* [tokens, top_k] */
  const void* gate_up;      /* [experts, packed, hidden], or [experts, hidden, packed] with gate_up_in_out */
  const void* down;         /* [experts, hidden, inner], or [experts, inner, hidden] with down_in_out */
  const void* gate_up_bias; /* [experts, packed], or null */
  const void* down_bias;    /* [experts, hidden], or null */
  void* y;                  /* [tokens, hidden] */
  void* scratch;            /* MojoMoEScratch bytes, aligned to 256 */
  size_t tokens;
  size_t top_k;
  size_t experts;
  size_t hidden;
  size_t inner;          /* packed is 2 * inner, or inner with kMojoNoGate */
  MojoType x_type;       /* of x and y */
  MojoType weights_type; /* float32 or x_type */
  MojoType expert_type;  /* of gate_up, down and the biases */
  MojoPacking packing;
  int gate_up_in_out;
  int down_in_out;
  MojoActivation activation;
  float alpha;
  float limit; /* 0: none */
  float up_offset;
  MojoMoEConfig config;
} MojoMoEArgs;

/* MojoMoETakes reports whether the current device's kernels take a call as its config says. It follows no pointer. */
int MojoMoETakes(const MojoMoEArgs* args);

/* MojoMoEScratch gives the bytes of device memory a call needs; it reads no pointer of args. */
size_t MojoMoEScratch(const MojoMoEArgs* args);
cudaError_t MojoCudaMoE(const MojoMoEArgs* args, cudaStream_t stream);

/* MojoCode is what a code of quantized weights is, MojoScales what the factors of blocks are. */
typedef enum { kMojoInt4, kMojoInt8, kMojoE2M1, kMojoE4M3 } MojoCode;
typedef enum {
  kMojoFloatScales,
  kMojoHalfScales,
  kMojoTwofoldScales,
  kMojoExponentScales,
  kMojoPanelScales /* float32 of a panel's 128 columns, with kMojoE4M3 alone */
} MojoScales;

/* MojoCudaMultipliesE4M3 tells whether the current device multiplies weights of kMojoE4M3, which takes compute
 * capability 9.0, activations rounded to the same, and of experts a packing with gates (for Linear, any). */
int MojoCudaMultipliesE4M3(MojoPacking packing);

/* MojoRounding is what activations are rounded to before they are multiplied with quantized weights. */
typedef enum { kMojoNotRounded, kMojoToInt16, kMojoToInt8, kMojoToE4M3 } MojoRounding;

/* MojoQuantizedWeights are weights [n, k] in panels of 16 rows, as docs/ops.md has them for Linear. The arrays are
 * aligned to 16 bytes. */
typedef struct {
  const void* codes;
  const void* scale;
  const void* minus;       /* or null */
  const void* super_scale; /* with kMojoTwofoldScales */
  const void* super_minus; /* there, with minus */
  size_t n, k, block;
  MojoCode code;
  MojoScales scales;
  int zero;
} MojoQuantizedWeights;

/* MojoLinearArgs is one Linear. */
typedef struct {
  MojoQuantizedWeights weights;
  const void* x;    /* [rows, k] */
  const void* bias; /* [n], or null */
  void* y;          /* [rows, n] */
  void* scratch;    /* MojoLinearScratch bytes, aligned to 256 */
  size_t rows;
  MojoType type; /* of x, bias and y */
  MojoRounding rounding;
} MojoLinearArgs;

/* MojoLinearScratch gives the bytes of device memory a call needs; it follows no pointer of args. */
size_t MojoLinearScratch(const MojoLinearArgs* args);
cudaError_t MojoCudaLinear(const MojoLinearArgs* args, cudaStream_t stream);

/* MojoEmbeddingArgs is one Embedding. A number that is no row's gives NaN. */
typedef struct {
  MojoQuantizedWeights weights;
  const int64_t* ids; /* [count] */
  float* y;           /* [count, k] */
  size_t count;
} MojoEmbeddingArgs;

cudaError_t MojoCudaEmbedding(const MojoEmbeddingArgs* args, cudaStream_t stream);

/* MojoQMoEArgs is one QMoE: a MoE whose matrices are quantized. moe.gate_up, moe.down, their layouts and
 * moe.expert_type are not read, and the biases are float32; moe.hidden and moe.inner are multiples of 32, and there are
 * at most 4096 experts. Of the weights, n and k are those of one expert, and the experts follow each other. */
typedef struct {
  MojoMoEArgs moe;
  MojoQuantizedWeights gate_up;
  MojoQuantizedWeights down;
  MojoRounding rounding;
} MojoQMoEArgs;

/* MojoQMoETakes is MojoMoETakes of QMoE. */
int MojoQMoETakes(const MojoQMoEArgs* args);

/* MojoQMoEScratch gives the bytes of device memory a call needs; it follows no pointer of args but for minus. */
size_t MojoQMoEScratch(const MojoQMoEArgs* args);
cudaError_t MojoCudaQMoE(const MojoQMoEArgs* args, cudaStream_t stream);

/* MojoAttentionArgs is one Attention. Keys are those of past_key, then those of k. With past_lengths they are as many
 * of past_key as it says (clamped to 0..past - added), then those of k; present_key may then be past_key, and
 * present_value past_value. No other tensor may overlap a result. */
struct MojoAttentionArgs : mojo::AttentionTensors {
  void* scratch = nullptr; /* MojoAttentionScratch bytes, aligned to 256; whatever they hold */
  float scale = 1;
  bool causal = false;
  size_t window = 0; /* 0: none */
  float softcap = 0; /* 0: none */
  bool empty_mean = false;
  bool cyclic = false; /* head h reads the keys of head h mod key_heads; else of h / (heads / key_heads) */
  MojoType type = kMojoFloat32;
};

/* MojoAttentionScratch gives the bytes of device memory a call needs; it follows no pointer of args. */
size_t MojoAttentionScratch(const MojoAttentionArgs* args);
cudaError_t MojoCudaAttention(const MojoAttentionArgs* args, cudaStream_t stream);

/* MojoLatentAttentionArgs is one LatentAttention. Lengths are as in MojoAttentionArgs; present may be
 * past_latents where past_lengths is given. */
struct MojoLatentAttentionArgs : mojo::LatentTensors {
  void* scratch = nullptr; /* MojoLatentAttentionScratch bytes, aligned to 256; whatever they hold */
  float scale = 1;
  bool causal = false;
  bool empty_mean = false;
  bool w_out_in = false; /* w is [heads * (nope + value_width), latent] */
  MojoType type = kMojoFloat32;
};

/* MojoLatentAttentionScratch gives the bytes of device memory a call needs; it follows no pointer of args. */
size_t MojoLatentAttentionScratch(const MojoLatentAttentionArgs* args);
cudaError_t MojoCudaLatentAttention(const MojoLatentAttentionArgs* args, cudaStream_t stream);

/* MojoCudaCapability is the compute capability of the current device: 90 for 9.0; 0 where there is none. */
int MojoCudaCapability(void);

/* MojoCudaSetDependentLaunch tells whether kernels may start while the one before them in the stream
 * ends (programmatic dependent launch, Hopper and later); in a graph, only after another kernel of these.
 * On unless turned off: for timings, and where a tool cannot follow it. */
void MojoCudaSetDependentLaunch(int on);

}  // extern "C"

#endif /* MOJO_KERNELS_CUDA_MOJO_CUDA_H_ */
