/* The CUDA kernels of the fused ops on raw device pointers and a stream, without onnxruntime.
 *
 * docs/ops.md defines what each op computes. Every function only launches kernels: it allocates nothing,
 * waits for nothing and reads nothing back, so a call can be captured into a CUDA graph. Zero rows or
 * tokens launch nothing. All tensors are dense and row-major; pointers need only the alignment of their
 * element (16 bytes are faster). Grids follow from the arguments alone, and results repeat bit for bit.
 * The arguments begin with the attributes of the op (common/types.h), if it has any that the kernel reads.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "attention/common/attention_tensors.h"
#include "common/types.h"
#include "linearattention/common/linear_tensors.h"
#include "moe/cuda/moe_config.h"
#include "rotary/common/rotary_layout.h"

namespace mojo {
struct PeerView; /* collective/cuda/peer_view.h */
}

extern "C" {

/* MojoType is the element type of a tensor. */
typedef mojo::ElementType MojoType;
constexpr MojoType kMojoFloat32 = mojo::kFloat32, kMojoFloat16 = mojo::kFloat16, kMojoBFloat16 = mojo::kBFloat16;

/* The most tensors that one launch of RotaryEmbedding or NormRotary takes: q and k. */
#define MOJO_MAX_TENSORS 2

/* MojoRMSNormArgs is one RMSNorm or AddRMSNorm. The type of y is x_type, or scale_type with
 * scale_after_cast. y may be x, and sum may be x and y residual. */
struct MojoRMSNormArgs : mojo::RMSNormAttributes { /* axis is not read */
  const void* x = nullptr;                         /* [rows, width] */
  const void* residual = nullptr;                  /* AddRMSNorm: [rows, width] of x_type; RMSNorm: ignored */
  const void* scale = nullptr;                     /* [width] */
  void* y = nullptr;                               /* [rows, width] */
  void* sum = nullptr; /* AddRMSNorm: [rows, width] of x_type, or null if nothing reads it; never y */
  size_t rows = 0, width = 0;
  MojoType x_type = kMojoFloat32, scale_type = kMojoFloat32;
};

cudaError_t MojoCudaRMSNorm(const MojoRMSNormArgs* args, cudaStream_t stream);
cudaError_t MojoCudaAddRMSNorm(const MojoRMSNormArgs* args, cudaStream_t stream);

/* MojoAllReduceArgs is one AllReduce. y may be x. peers is null for one rank, here and below; with more, the ranks
 * launch the same ops in the same order, each on one stream. */
struct MojoAllReduceArgs {
  const mojo::PeerView* peers = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
  size_t count = 0;
  MojoType type = kMojoFloat32;
};

cudaError_t MojoCudaAllReduce(const MojoAllReduceArgs* args, cudaStream_t stream);

/* MojoPartsArgs is one exchange of parts of `part` elements, of which `inner` lie together. Of ReduceScatter and
 * AllToAll, x has [part / inner, ranks, inner] elements; of AllGather and AllToAll, y. */
struct MojoPartsArgs {
  const mojo::PeerView* peers = nullptr;
  const void* x = nullptr;
  void* y = nullptr; /* x only if each element has the same place in both */
  size_t part = 0, inner = 0;
  size_t count = SIZE_MAX; /* elements of the larger tensor: those of the last parts may be missing */
  MojoType type = kMojoFloat32;
};

cudaError_t MojoCudaReduceScatter(const MojoPartsArgs* args, cudaStream_t stream);
cudaError_t MojoCudaAllGather(const MojoPartsArgs* args, cudaStream_t stream);
cudaError_t MojoCudaAllToAll(const MojoPartsArgs* args, cudaStream_t stream);

/* MojoAllReduceAddRMSNormArgs is AddRMSNorm of the AllReduce of x, rounded to its type. sum may be x; y may be x or
 * residual only with one rank. */
struct MojoAllReduceAddRMSNormArgs : MojoRMSNormArgs {
  const mojo::PeerView* peers = nullptr;
  void* scratch = nullptr; /* MojoAllReduceAddRMSNormScratch bytes */
};

/* MojoAllReduceAddRMSNormScratch gives the bytes of device memory a call needs, 0 in most; it follows no pointer of
 * args. */
size_t MojoAllReduceAddRMSNormScratch(const MojoAllReduceAddRMSNormArgs* args);
cudaError_t MojoCudaAllReduceAddRMSNorm(const MojoAllReduceAddRMSNormArgs* args, cudaStream_t stream);

/* MojoGatedRMSNormArgs is one GatedRMSNorm of rows of width elements, each a group. y, of the type of gate, may be x
 * where that has the same type, or gate. x of another type than gate is float32. */
struct MojoGatedRMSNormArgs : mojo::GatedRMSNormAttributes {
  const void* x = nullptr;     /* [rows, width] of x_type */
  const void* gate = nullptr;  /* [rows, width] of gate_type */
  const void* scale = nullptr; /* [groups, width] of scale_type: gate_type or float32 */
  void* y = nullptr;           /* [rows, width] of gate_type */
  size_t rows = 0, width = 0;
  MojoType x_type = kMojoFloat32, gate_type = kMojoFloat32, scale_type = kMojoFloat32;
};

cudaError_t MojoCudaGatedRMSNorm(const MojoGatedRMSNormArgs* args, cudaStream_t stream);

/* MojoNormQuantizeArgs is one NormQuantize. scale_type is x_type or float32. y is int8, or float8e4m3fn with float8.
 * sum may be x or residual. */
struct MojoNormQuantizeArgs : mojo::NormQuantizeAttributes { /* scale_after_cast only if scale_type is x_type */
  const void* x = nullptr;                                   /* [rows, width] of x_type */
  const void* residual = nullptr;                            /* [rows, width] of x_type, or null */
  const void* scale = nullptr;                               /* [width] of scale_type */
  void* y = nullptr;                                         /* [rows, width] */
  float* y_scale = nullptr;                                  /* [rows] */
  void* sum = nullptr;                                       /* [rows, width] of x_type, or null */
  size_t rows = 0, width = 0;
  bool float8 = false;
  MojoType x_type = kMojoFloat32, scale_type = kMojoFloat32;
};

cudaError_t MojoCudaNormQuantize(const MojoNormQuantizeArgs* args, cudaStream_t stream);

/* MojoAddLayerNormArgs is one AddLayerNorm. x_type is y_type or float32. sum may be x, and y residual where both have
 * one type. */
struct MojoAddLayerNormArgs : mojo::AddLayerNormAttributes {
  const void* x = nullptr;        /* [rows, width] of x_type */
  const void* residual = nullptr; /* [rows, width] of x_type */
  const void* x_bias = nullptr;   /* [width] of x_type, or null */
  const void* scale = nullptr;    /* [width] of y_type */
  const void* bias = nullptr;     /* [width] of y_type */
  void* y = nullptr;              /* [rows, width] of y_type */
  void* sum = nullptr;            /* [rows, width] of x_type, or null if nothing reads it; never y */
  size_t rows = 0, width = 0;
  MojoType x_type = kMojoFloat32, y_type = kMojoFloat32;
};

cudaError_t MojoCudaAddLayerNorm(const MojoAddLayerNormArgs* args, cudaStream_t stream);

/* MojoGLUArgs is one GLU of count elements. y may be gate or up. */
struct MojoGLUArgs : mojo::GLUAttributes {
  const void *gate = nullptr, *up = nullptr;
  void* y = nullptr;
  size_t count = 0;
  MojoType type = kMojoFloat32;
};

cudaError_t MojoCudaGLU(const MojoGLUArgs* args, cudaStream_t stream);

/* MojoBiasGELUArgs is one BiasGELU. y may be x. */
struct MojoBiasGELUArgs : mojo::BiasGELUAttributes {
  const void* x = nullptr;    /* [rows, width] */
  const void* bias = nullptr; /* [width] */
  void* y = nullptr;          /* [rows, width] */
  size_t rows = 0, width = 0;
  MojoType type = kMojoFloat32;
};

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

/* MojoRotaryArgs is one RotaryEmbedding. ReadRotary of rotary/common/rotary_embedding.h makes the layout. y may be x
 * if interleaved equals output_interleaved; the other attributes are not read. */
struct MojoRotaryArgs : mojo::RotaryLayout, mojo::RotaryEmbeddingAttributes {
  const void *x = nullptr, *cos = nullptr, *sin = nullptr;
  void* y = nullptr;
  MojoType type = kMojoFloat32;
};

/* MojoCudaRotaryEmbedding does count tensors (at most MOJO_MAX_TENSORS), in one launch where their forms
 * are alike: q and k of an attention. None may overlap another's y. */
cudaError_t MojoCudaRotaryEmbedding(const MojoRotaryArgs* args, int count, cudaStream_t stream);

/* MojoNormRotaryArgs is RMSNorm over the last dimension of rotary.x, then RotaryEmbedding of the result,
 * each with the roundings of its op. The type of the norm's result is rotary.type (as of y, cos and sin);
 * where x_type is another one, it is float32 with scale_after_cast. rotary.y may be rotary.x where that is so for
 * RotaryEmbedding. */
struct MojoNormRotaryArgs {
  MojoRotaryArgs rotary;
  const void* scale = nullptr; /* [width] */
  float epsilon = 0;
  bool scale_after_cast = false;
  MojoType x_type = kMojoFloat32, scale_type = kMojoFloat32;
};

cudaError_t MojoCudaNormRotary(const MojoNormRotaryArgs* args, int count, cudaStream_t stream);

/* MojoTopKRouterArgs is one TopKRouter. */
struct MojoTopKRouterArgs : mojo::TopKRouterAttributes {
  const void* logits = nullptr; /* [rows, experts] */
  const void* bias = nullptr;   /* [experts], or null */
  float* weights = nullptr;     /* [rows, top_k] */
  int64_t* ids = nullptr;       /* [rows, top_k] */
  void* scratch = nullptr;      /* MojoTopKRouterScratch bytes, or null where those are 0 */
  size_t rows = 0, experts = 0;
  MojoType logits_type = kMojoFloat32, bias_type = kMojoFloat32;
};

/* MojoTopKRouterScratch gives the bytes of device memory a call needs; it reads no pointer of args. */
size_t MojoTopKRouterScratch(const MojoTopKRouterArgs* args);
cudaError_t MojoCudaTopKRouter(const MojoTopKRouterArgs* args, cudaStream_t stream);

/* MojoSampleArgs is one Sample. */
struct MojoSampleArgs {
  const void* logits = nullptr;    /* [rows, vocabulary] */
  const float* controls = nullptr; /* [rows, 7] */
  const int64_t* random = nullptr; /* [rows] */
  const int64_t* tokens = nullptr; /* [rows, length], or null */
  const int64_t* prompt = nullptr; /* [rows], or null for zeros */
  int64_t* ids = nullptr;          /* [rows] */
  void* scratch = nullptr;         /* MojoSampleScratch bytes */
  size_t rows = 0, vocabulary = 0, length = 0;
  MojoType logits_type = kMojoFloat32;
};

/* MojoSampleScratch gives the bytes of device memory a call needs; it reads no pointer of args. */
size_t MojoSampleScratch(const MojoSampleArgs* args);
cudaError_t MojoCudaSample(const MojoSampleArgs* args, cudaStream_t stream);

/* MojoMoEArgs is one MoE. An id outside of 0..experts-1 adds nothing. */
struct MojoMoEArgs {
  const void* x = nullptr;            /* [tokens, hidden] */
  const void* weights = nullptr;      /* [tokens, top_k] */
  const int64_t* ids = nullptr;       /* [tokens, top_k] */
  const void* gate_up = nullptr;      /* [experts, packed, hidden], or [experts, hidden, packed] with gate_up_in_out */
  const void* down = nullptr;         /* [experts, hidden, inner], or [experts, inner, hidden] with down_in_out */
  const void* gate_up_bias = nullptr; /* [experts, packed], or null */
  const void* down_bias = nullptr;    /* [experts, hidden], or null */
  void* y = nullptr;                  /* [tokens, hidden] */
  void* scratch = nullptr;            /* MojoMoEScratch bytes, aligned to 256 */
  size_t tokens = 0, top_k = 0, experts = 0, hidden = 0;
  size_t inner = 0;                     /* packed is 2 * inner, or inner without a gate */
  MojoType x_type = kMojoFloat32;       /* of x and y */
  MojoType weights_type = kMojoFloat32; /* float32 or x_type */
  MojoType expert_type = kMojoFloat32;  /* of gate_up, down and the biases */
  mojo::Packing packing = mojo::Packing::kHalves;
  int gate_up_in_out = 0;
  int down_in_out = 0;
  mojo::GLUAttributes gate;
  MojoMoEConfig config = {};
};

/* MojoMoETakes reports whether the current device's kernels take a call as its config says. It follows no pointer. */
int MojoMoETakes(const MojoMoEArgs* args);

/* MojoMoEScratch gives the bytes of device memory a call needs; it reads no pointer of args. */
size_t MojoMoEScratch(const MojoMoEArgs* args);
cudaError_t MojoCudaMoE(const MojoMoEArgs* args, cudaStream_t stream);

/* MojoScales is the kind of the factors of blocks. */
typedef enum {
  kMojoFloatScales,
  kMojoHalfScales,
  kMojoTwofoldScales,
  kMojoExponentScales,
  kMojoPanelScales /* float32 of a panel's 128 columns, only with Code::kE4m3 */
} MojoScales;

/* MojoCudaMultipliesE4M3 reports whether the current device multiplies weights of Code::kE4m3, which takes compute
 * capability 9.0, activations rounded to the same, and of experts a packing with gates (for Linear, any). */
int MojoCudaMultipliesE4M3(mojo::Packing packing);

/* MojoQuantizedWeights are weights [n, k] in panels of 16 rows, as docs/ops.md has them for Linear. The arrays are
 * aligned to 16 bytes. */
struct MojoQuantizedWeights {
  const void* codes = nullptr;
  const void* scale = nullptr;
  const void* minus = nullptr;       /* or null */
  const void* super_scale = nullptr; /* with kMojoTwofoldScales */
  const void* super_minus = nullptr; /* there, with minus */
  size_t n = 0, k = 0, block = 0;
  mojo::Code code = mojo::Code::kInt4;
  MojoScales scales = kMojoFloatScales;
  int zero = 0;
};

/* MojoLinearArgs is one Linear. */
struct MojoLinearArgs {
  MojoQuantizedWeights weights;
  const void* x = nullptr;    /* [rows, k] */
  const void* bias = nullptr; /* [n], or null */
  void* y = nullptr;          /* [rows, n] */
  void* scratch = nullptr;    /* MojoLinearScratch bytes, aligned to 256 */
  size_t rows = 0;
  MojoType type = kMojoFloat32; /* of x, bias and y */
  /* The type to which activations are rounded before the product. */
  mojo::Activations rounding = mojo::Activations::kFloat;
};

/* MojoLinearScratch gives the bytes of device memory a call needs; it follows no pointer of args. */
size_t MojoLinearScratch(const MojoLinearArgs* args);
cudaError_t MojoCudaLinear(const MojoLinearArgs* args, cudaStream_t stream);

/* MojoEmbeddingArgs is one Embedding. A number that is no row's gives NaN. */
struct MojoEmbeddingArgs {
  MojoQuantizedWeights weights;
  const int64_t* ids = nullptr; /* [count] */
  float* y = nullptr;           /* [count, k] */
  size_t count = 0;
};

cudaError_t MojoCudaEmbedding(const MojoEmbeddingArgs* args, cudaStream_t stream);

/* MojoQMoEArgs is one QMoE: a MoE whose matrices are quantized. moe.gate_up, moe.down, their layouts and
 * moe.expert_type are not read, and the biases are float32; moe.hidden and moe.inner are multiples of 32, and there are
 * at most 4096 experts. Of the weights, n and k are those of one expert, and the experts follow each other. */
struct MojoQMoEArgs {
  MojoMoEArgs moe;
  MojoQuantizedWeights gate_up, down;
  mojo::Activations rounding = mojo::Activations::kFloat; /* as in MojoLinearArgs */
};

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

/* MojoPagedAttentionArgs is one PagedAttention. The integers are on the device. The kernels clamp them to the tensors:
 * wrong ones give wrong results, but no access outside of the tensors. A cache may be its result. */
struct MojoPagedAttentionArgs : mojo::PagedAttentionAttributes {
  const void *q = nullptr, *k = nullptr, *v = nullptr;     /* [tokens, heads or key_heads, width or value_width] */
  const void *key_cache = nullptr, *value_cache = nullptr; /* [blocks, block, key_heads, width or value_width] */
  const int32_t *cumulative = nullptr, *past = nullptr;    /* [sequences + 1], [sequences] */
  const int32_t *table = nullptr, *slots = nullptr;        /* [sequences, columns]; [tokens] or null */
  const float* sink = nullptr;                             /* [heads] or null */
  void *y = nullptr, *key_cache_out = nullptr, *value_cache_out = nullptr;
  size_t tokens = 0, sequences = 0, heads = 0, key_heads = 0, width = 0, value_width = 0;
  size_t blocks = 0, block = 0, columns = 0;
  void* scratch = nullptr; /* MojoPagedAttentionScratch bytes, aligned to 256; whatever they hold */
  MojoType type = kMojoFloat32;
};

/* MojoQPagedAttentionArgs is one QPagedAttention. The caches have codes of int8 or, with float8, of float8e4m3fn. */
struct MojoQPagedAttentionArgs : MojoPagedAttentionArgs {
  const float *key_scale = nullptr, *value_scale = nullptr; /* [blocks, key_heads]; may be their results */
  float *key_scale_out = nullptr, *value_scale_out = nullptr;
  bool float8 = false;
};

size_t MojoQPagedAttentionScratch(const MojoQPagedAttentionArgs* args);
cudaError_t MojoCudaQPagedAttention(const MojoQPagedAttentionArgs* args, cudaStream_t stream);

/* MojoPagedAttentionScratch gives the bytes of device memory a call needs; it follows no pointer of args. */
size_t MojoPagedAttentionScratch(const MojoPagedAttentionArgs* args);
cudaError_t MojoCudaPagedAttention(const MojoPagedAttentionArgs* args, cudaStream_t stream);

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
