// The interface between the CPU ops and their inner loops.
//
// The loops are compiled once per instruction set from the same source (table.cc). All these units include this header,
// so it holds plain data only: an inline function here would be compiled with AVX-512 in one unit, and the linker might
// pick that copy for every machine.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/types.h"

namespace mojo {

// NormArgs is one RMSNorm, AddRMSNorm or GatedRMSNorm call; buffers are dense, rows of width elements.
struct NormArgs {
  const void* x;
  const void* residual;  // AddRMSNorm only
  const float* scale;
  void* y;
  void* sum;  // AddRMSNorm only, null if the node omits it
  size_t width;
  float epsilon;
  const void* gate;  // GatedRMSNorm only, of y's type
  size_t groups;     // GatedRMSNorm only: rows of scale, used in turn
};

// NormFn normalizes the rows from begin to end - 1.
typedef void (*NormFn)(const NormArgs& args, size_t begin, size_t end);

// NormGate is the operand of a GatedRMSNorm's gate: the norm, or its input.
enum NormGate { kNoGate, kNormThenGate, kGateThenNorm };

// NormKey selects a NormFn.
struct NormKey {
  ElementType x;
  ElementType y;  // type of the output, and of the rounded n if scale_after_cast
  bool scale_after_cast;
  bool add;
  NormGate gate = kNoGate;
};

// LayerArgs is one AddLayerNorm call; buffers are dense, rows of width elements. scale, bias and y have one type, the
// others another one.
struct LayerArgs {
  const void* x;
  const void* residual;
  const void* x_bias;  // may be null
  const void* scale;
  const void* bias;
  void* y;
  void* sum;  // null if the node omits it
  size_t width;
  float epsilon;
};

// LayerFn normalizes the rows from begin to end - 1.
typedef void (*LayerFn)(const LayerArgs& args, size_t begin, size_t end);

// NormQuantizeArgs is one NormQuantize call. Buffers are dense, with rows of width elements. x, residual and sum have
// the same type.
struct NormQuantizeArgs {
  const void* x;
  const void* residual;  // null: none
  const float* scale;
  uint8_t* y;      // codes of float8e4m3fn if float8, else of int8
  float* y_scale;  // one for each row
  void* sum;       // null if the node omits it; may be x or residual
  size_t width;
  float epsilon;
  float least_scale;
  bool float8;
};

// NormQuantizeFn computes the rows from begin to end - 1.
typedef void (*NormQuantizeFn)(const NormQuantizeArgs& args, size_t begin, size_t end);

// GateArgs is one GLU call.
struct GateArgs {
  const void* gate;
  const void* up;
  void* y;
  float alpha;
  float limit;
  float up_offset;
};

// GateFn computes the elements from begin to end - 1.
typedef void (*GateFn)(const GateArgs& args, size_t begin, size_t end);

// BiasGateArgs is one BiasGELU call: rows of width elements, each with the bias.
struct BiasGateArgs {
  const void* x;
  const void* bias;
  void* y;
  size_t width;
  float alpha;
};

// BiasGateFn computes the rows from begin to end - 1.
typedef void (*BiasGateFn)(const BiasGateArgs& args, size_t begin, size_t end);

// RotaryArgs is count rows of width elements, one after the other in x and y, whose rows of cos and sin lie cos_step
// and sin_step elements apart. 2 * half channels from first on are rotated, the others are copied. A wide table has an
// element for each rotated channel, another one for each pair.
struct RotaryArgs {
  const void* x;
  const void* cos;
  const void* sin;
  void* y;
  size_t count;
  size_t width;
  size_t first;
  size_t half;
  size_t cos_step;
  size_t sin_step;
  bool cos_wide;
  bool sin_wide;
};

// RotaryFn rotates all rows of args. y may be x's buffer; if from and to differ, only up to kRotaryInPlace rotated
// channels.
typedef void (*RotaryFn)(const RotaryArgs& args);
constexpr size_t kRotaryInPlace = 2048;

// PairLayout places the two channels of a pair: in the two halves, or beside each other.
enum PairLayout { kHalves, kInterleaved };

// NormRotaryArgs is a rotation of rows that are normalized first. rotary.x may have another type than rotary.y, cos and
// sin.
struct NormRotaryArgs {
  RotaryArgs rotary;
  const float* scale;  // of rotary.width numbers
  float epsilon;
};

// NormRotaryFn does all rows of args. rotary.y may be rotary.x's buffer; if from and to differ, only for rows of up to
// kRotaryInPlace channels.
typedef void (*NormRotaryFn)(const NormRotaryArgs& args);

// NormRotaryKey selects a NormRotaryFn.
struct NormRotaryKey {
  ElementType x;
  ElementType y;
  bool scale_after_cast;
  PairLayout from, to;
};

// ProductArgs is y[token][n] = sum over k of x[token][k] * weight(n, k), for the n below width and the k below depth.
// weight(n, k) is w[n * stride + k] if by_rows, else w[k * stride + n].
struct ProductArgs {
  const void* w;
  size_t stride;
  bool by_rows;
  const float* const* x;  // per token
  size_t tokens;
  size_t depth;
  size_t width;
  float* y;
  size_t y_stride;
};

// ProductFn computes one product.
typedef void (*ProductFn)(const ProductArgs& args);

// PanelArgs is a product with panels of tokens, whose numbers lie side by side for each input and output:
// y[panel][n][lane] = bias[n] + sum over k of x[panel][k][lane] * w[n * stride + k], for the n below width and the k
// below depth.
struct PanelArgs {
  const void* w;
  size_t stride;
  const float* bias;  // may be null
  const float* x;
  size_t panels;
  size_t depth;
  size_t width;
  float* y;
  const void* next;  // the weights that may follow, to prefetch
};

// PanelFn computes one product.
typedef void (*PanelFn)(const PanelArgs& args);
constexpr size_t kMostLanes = 16;

// WeightedSumArgs is y = sum over i of weights[i] * rows[i], for the i below count, of width numbers.
struct WeightedSumArgs {
  const float* const* rows;
  const float* weights;
  size_t count;
  size_t width;
  void* y;
};

// FromPanelFn writes tokens[lane][k] = panel[k][lane] + bias[k], for the k below n; bias may be null.
typedef void (*FromPanelFn)(const float* panel, const float* bias, void* const* tokens, size_t n);

// WeightedSumFn computes one sum, in the order of i.
typedef void (*WeightedSumFn)(const WeightedSumArgs& args);

// RouterArgs is one TopKRouter call; rows of experts logits, and of top_k weights and ids.
struct RouterArgs {
  const void* logits;
  const void* bias;  // may be null
  float* weights;
  int64_t* ids;
  float* scratch;  // memory for kRouterScratch * (experts and 64 more) numbers; may be null for up to kRouterExperts
  ElementType logits_type;
  ElementType bias_type;
  size_t experts;
  size_t top_k;
  size_t groups;
  size_t group_top_k;
  float excluded;
  float epsilon;
  float scale;
  Score score;
  bool top_k_first;
  bool top2_sum;
  bool renormalize;
};

// RouterFn chooses the experts of the rows from begin to end - 1. With scratch, one call at a time.
typedef void (*RouterFn)(const RouterArgs& args, size_t begin, size_t end);
constexpr size_t kRouterScratch = 5;
constexpr size_t kRouterExperts = 1024;

// Attention works on tiles: the queries that share a head of keys, up to kAttentionRows of them, and the keys in blocks
// of kAttentionBlock.
constexpr size_t kAttentionBlock = 128;
constexpr size_t kAttentionRows = 48;
// Up to so many queries read many keys in place; for more, keys and values are packed into panels first.
constexpr size_t kAttentionFew = 16;

// AttentionTile is the rows of a tile, one for each query and head, and the keys that they are multiplied with. Steps
// are in elements.
struct AttentionTile {
  size_t rows;
  const float* q;  // [rows, q_step], scaled; with panels kAttentionRows rows, zeros behind the tile's rows
  size_t q_step;
  size_t width;
  size_t value_width;
  size_t begin, end;    // keys
  const size_t* first;  // per row: the keys that it sees are first to last - 1; both never decrease from row to row
  const size_t* last;
  const float* valid;        // per key 0, or minus infinity if hidden; null: all keys are visible
  const float* const* bias;  // per row: the bias of key 0; may be null
  size_t bias_step;          // 0: one number for all keys
  float softcap;             // 0: no cap
  const size_t* places;      // per key: its row in keys and values; null: its number
  size_t ahead;              // keys to prefetch, which have a place, too
  const float* key_scales;   // of codes: a factor for each key from begin on, and kMostLanes - 1 numbers behind
  const float* value_scales;
  const void* keys;  // key 0 of the head, or row 0 of a pool
  size_t key_step;
  const void* values;
  size_t value_step;
  const float* key_panels;  // of the head, from key number first_panel on; null: keys and values are read
  const float* value_panels;
  size_t first_panel;
  float* scores;   // [rows, kAttentionBlock], with panels as many as q
  float* factors;  // per row
  float* wide;     // kMostLanes * q_step numbers
  float* most;     // per row: the greatest score so far, the sum of the powers below it, and the sum of values
  float* sum;
  float* total;    // [rows, total_step]
  float* partial;  // as large: the values of a part of a block; only without panels
  size_t total_step;
};

// AttentionPack is a block of keys and values to be packed into panels: count of them. The rest of the last panel of
// keys is filled with zeros; panels behind it do not change.
struct AttentionPack {
  const void* keys;
  size_t key_step;
  const void* values;
  size_t value_step;
  const size_t* places;  // as in AttentionTile
  const float* key_scales;
  const float* value_scales;
  size_t width;
  size_t value_width;
  size_t count;
  float* key_panel;    // kAttentionBlock * width numbers
  float* value_panel;  // kAttentionBlock * padded value_width
};

// AttentionRow is a row of the result, joined from slices of its keys.
struct AttentionRow {
  const float* most;
  const float* sum;
  const float* total;
  size_t slices;
  size_t state_step;  // from a slice's most and sum to the next one's
  size_t total_step;
  const float* empty;  // the result if no key was seen; null: zeros
  size_t width;
  void* y;
};

// AttentionFns are the loops of Attention for one type of elements.
struct AttentionFns {
  // query writes n numbers times scale, and zeros up to n_padded, a multiple of kMostLanes.
  void (*query)(const void* q, float scale, float* to, size_t n, size_t n_padded);
  // add brings the keys of a tile to most, sum and total.
  void (*add)(const AttentionTile& tile);
  void (*pack)(const AttentionPack& args);
  // mean writes the mean of count rows of width numbers.
  void (*mean)(const void* values, size_t step, size_t count, size_t width, float* to);
  void (*finish)(const AttentionRow& row);
};

// PoolFns are the loops of attention to pools of codes, for one type of new rows and of codes.
struct PoolFns {
  // greatest returns the greatest magnitude of n numbers of a new row, NaN if there is one.
  float (*greatest)(const void* row, size_t n);
  // encode writes the codes of n numbers of a new row divided by scale.
  void (*encode)(const void* row, float scale, void* codes, size_t n);
  // recode replaces n codes by those of their numbers times factor.
  void (*recode)(void* codes, float factor, size_t n);
  void (*add)(const AttentionTile& tile);  // as in AttentionFns, of keys and values that have places
  void (*pack)(const AttentionPack& args);
};

// LinearScanArgs is one head of one sequence of LinearAttention. Steps are in elements, from token to token.
struct LinearScanArgs {
  const float* q;  // [queries, depth] for each token
  size_t q_step;
  size_t queries;
  const float* k;
  size_t k_step;
  const void* v;
  size_t v_step;
  ElementType type;      // of v and y
  const float* factors;  // of the state, one for all channels of the keys or, if by_channel, one for each
  size_t factors_step;
  bool by_channel;
  const float* beta;  // may be null
  size_t beta_step;
  void* y;  // [queries, columns] for each token
  size_t y_step;
  const float* past;  // [depth, columns]; null: zeros
  float* present;     // as past, may be its memory; null: the state stays in room
  float* room;        // for as many numbers; may be null for one token that has past and present
  bool resumes;       // the state is in room, from the tokens before, instead of past
  size_t tokens;
  size_t depth;
  size_t columns;
  float scale;
};

// LinearScanFn takes the columns from begin to end - 1 through all tokens. It uses a part of room that no other columns
// use.
typedef void (*LinearScanFn)(const LinearScanArgs& args, size_t begin, size_t end);

// ChannelScanArgs are the states of one sequence of LinearAttention that have one column, as in Mamba-1, and share
// queries and keys. Steps are in elements, from token to token.
struct ChannelScanArgs {
  const float* q;  // [depth] for each token
  const float* k;
  const void* v;       // [channels] for each token
  ElementType type;    // of v and y
  const float* decay;  // logarithms, [channels, depth if by_key, else 1] for each token; may be null
  bool by_key;
  void* y;            // [channels] for each token
  const float* past;  // [channels, depth]; null: zeros
  float* present;     // as past, may be its memory; null: not read
  float* room;        // as past; may be null for one token that has past and present
  size_t tokens;
  size_t depth;
  size_t channels;
  float scale;
};

// ChannelScanFn takes the channels from begin to end - 1 through all tokens.
typedef void (*ChannelScanFn)(const ChannelScanArgs& args, size_t begin, size_t end);

// ConvArgs is one CausalConv call: rows of tokens, one for each channel of each sequence, and kept numbers of past and
// present for each.
struct ConvArgs {
  const void* x;
  const void* weight;  // [channels, width]
  const void* bias;    // may be null
  const void* past;    // null: zeros
  void* y;
  void* present;  // may be past's memory; null: not read
  size_t channels;
  size_t tokens;
  size_t width;
  size_t kept;  // at least width - 1
  bool silu;
};

// ConvFn computes the rows from begin to end - 1.
typedef void (*ConvFn)(const ConvArgs& args, size_t begin, size_t end);

// KernelTable is the inner loops of one instruction set. The functions return null for an unused combination.
struct KernelTable {
  const char* name;
  size_t lanes;  // tokens of a panel
  NormFn (*norm)(const NormKey& key);
  LayerFn (*layer)(ElementType x, ElementType y);
  // after is scale_after_cast.
  NormQuantizeFn (*norm_quantize)(ElementType x, bool after);
  GateFn (*gate)(ElementType type, Activation kind);
  BiasGateFn (*bias_gate)(ElementType type, Activation kind);
  RotaryFn (*rotary)(ElementType type, PairLayout from, PairLayout to);
  NormRotaryFn (*norm_rotary)(const NormRotaryKey& key);
  ProductFn (*product)(ElementType weights);
  // product_of_few is product for a whole matrix: a token's result may depend on the number of others.
  ProductFn (*product_of_few)(ElementType weights);
  PanelFn (*panels)(ElementType weights);
  // to_panel writes panel[k][lane] = tokens[lane][k], for the k below n; from_panel goes back, to the type of tokens.
  void (*to_panel)(const float* const* tokens, float* panel, size_t n);
  FromPanelFn (*from_panel)(ElementType tokens);
  WeightedSumFn (*weighted_sum)(ElementType y);
  RouterFn router;
  // to_float32 widens n elements, for scales that are prepared once.
  void (*to_float32)(ElementType type, const void* from, float* to, size_t n);
  const AttentionFns* (*attention)(ElementType type);
  const PoolFns* (*pool)(ElementType rows, bool float8);
  // stream copies bytes and bypasses the processor's caches.
  void (*stream)(const void* from, void* to, size_t bytes);
  LinearScanFn linear_scan;
  size_t linear_columns;  // columns of a task
  // unit writes n numbers divided by the root of the sum of their squares and epsilon.
  void (*unit)(ElementType type, const void* from, float* to, size_t n, float epsilon);
  void (*powers)(const float* from, float* to, size_t n);  // e^x, 0 if that is not a normal number
  ConvFn (*conv)(ElementType type);
  ChannelScanFn channel_scan;
};

extern const KernelTable kPortableKernels;
extern const KernelTable kHereKernels;  // of here_table.cc: null for the loops that it lacks
#if defined(MOJO_X86)
extern const KernelTable kAVX2Kernels;
extern const KernelTable kAVX512Kernels;
#endif

// BFloatFns are products with weights in bfloat16 that round tokens to bfloat16, too, and sum in float32. Tokens are
// pairs of neighbors, two in a word, which ProductArgs and PanelArgs call float; depth is the number of inputs.
struct BFloatFns {
  const char* name;
  // round writes n inputs as pairs, and zeros up to a multiple of kPairStep inputs.
  void (*round)(ElementType type, const void* from, float* to, size_t n);
  // round_panel does so with a panel.
  void (*round_panel)(const float* from, float* to, size_t n);
  ProductFn product;
  PanelFn panels;  // null if the processor has no tiles
};
constexpr size_t kPairStep = 32;

#if defined(MOJO_BFLOAT)
extern const BFloatFns kVectorBFloat;
extern const BFloatFns kTileBFloat;
#endif

}  // namespace mojo
