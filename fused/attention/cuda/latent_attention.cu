// LatentAttention (DeepSeek-V2, 2024: multi-head latent attention): it appends the new latents to the cache, then runs
// Attention in one of two forms. Naive: keys and values of all heads are computed from the latents. Absorbed: queries
// are multiplied by w and attend to the latents, which are the keys of all heads. attention/common/latent_form.h
// chooses the form with fewer multiplications.
#include <algorithm>

#include "attention/common/latent_form.h"
#include "attention/cuda/latent_product.cuh"
#include "common/room.h"

namespace mojo {
namespace {

constexpr int kThreads = 256;
constexpr int kUnits = 4;  // of a thread

// Sizes are the sizes of latents, in copy units.
struct Sizes {
  int latent, width;
  int blocks;  // of a sequence
};

// PastOf is the number of a sequence's tokens before the new ones.
__device__ __forceinline__ size_t PastOf(const MojoLatentAttentionArgs& a, size_t b) {
  if (a.past_lengths == nullptr) return a.past;
  const int64_t n = __ldg(a.past_lengths + (a.one_length ? 0 : b)), most = static_cast<int64_t>(a.past - a.added);
  return static_cast<size_t>(n < 0 ? 0 : n > most ? most : n);
}

// AppendLatents writes all latents, or only the new ones if present is past, and their number.
//
// Registers: 32. No shared memory.
template <class Unit>
__global__ __launch_bounds__(kThreads) void AppendLatents(const __grid_constant__ MojoLatentAttentionArgs a,
                                                          Unit* latents, int64_t* lengths, Sizes s) {
  WaitForPrevious();
  LetNextStart();
  const size_t b = blockIdx.x / s.blocks, past = PastOf(a, b);
  if (blockIdx.x % s.blocks == 0 && threadIdx.x == 0) {
    lengths[b] = static_cast<int64_t>(past + a.added);
  }
  const Unit* const before = static_cast<const Unit*>(a.past_latents) + b * a.past * s.width;
  const Unit* const c = static_cast<const Unit*>(a.c) + b * a.added * s.latent;
  const Unit* const k_pe = static_cast<const Unit*>(a.k_pe) + b * a.added * (s.width - s.latent);
  Unit* const to = latents + b * a.room * s.width;
  const bool in_place = latents == a.past_latents;
  const size_t begin = in_place ? past : 0, count = (in_place ? a.added : a.room) * s.width;
  size_t i = static_cast<size_t>(blockIdx.x % s.blocks) * (kThreads * kUnits) + threadIdx.x;
#pragma unroll
  for (int n = 0; n < kUnits; ++n, i += kThreads) {
    if (i >= count) return;
    const size_t token = begin + i / s.width;
    const int at = static_cast<int>(i % s.width);
    const bool is_new = token >= past && token < past + a.added;
    const size_t added = token - past;
    to[token * s.width + at] = !is_new         ? before[token * s.width + at]
                               : at < s.latent ? c[added * s.latent + at]
                                               : k_pe[added * (s.width - s.latent) + at - s.latent];
  }
}

template <class Unit>
cudaError_t RunAppend(const MojoLatentAttentionArgs& a, void* latents, int64_t* lengths, cudaStream_t stream) {
  const size_t elements = sizeof(Unit) / TypeSize(a.type), width = (a.latent + a.rotated) / elements;
  const size_t units = (latents == a.past_latents ? a.added : a.room) * width;
  const size_t blocks = std::max<size_t>(1, DivideUp(units, kThreads * kUnits));
  const Sizes sizes{static_cast<int>(a.latent / elements), static_cast<int>(width), static_cast<int>(blocks)};
  return Launch(AppendLatents<Unit>, static_cast<unsigned>(a.batch * blocks), kThreads, 0, stream, a,
                static_cast<Unit*>(latents), lengths, sizes);
}

// Plan is the form of a call and the layout of its scratch memory.
struct Plan {
  bool naive;
  void* latents;     // present, or in its place
  int64_t* lengths;  // [batch] of them
  // Naive: so many sequences and heads at a time.
  size_t batch, heads;
  void *keys, *values;
  // Absorbed.
  void *queries, *attended;
  void* attention;  // its scratch memory
};

// The most memory for keys and values of heads at a time, unless a single head needs more.
constexpr size_t kHeadBytes = size_t{512} << 20;

size_t Width(const MojoLatentAttentionArgs& a) { return a.latent + a.rotated; }

// SetCommon sets the arguments common to both forms.
void SetCommon(const MojoLatentAttentionArgs& a, const Plan& plan, MojoAttentionArgs* to) {
  to->past_lengths = plan.lengths;
  to->valid_step = a.valid_step;
  to->queries = a.queries;
  to->past = to->room = a.room;
  to->scale = a.scale;
  to->causal = a.causal;
  to->empty_mean = a.empty_mean;
  to->type = a.type;
  to->scratch = plan.attention;
}

// NaiveArgs are the arguments of attention to keys and values of some heads of some sequences.
MojoAttentionArgs NaiveArgs(const MojoLatentAttentionArgs& a, const Plan& plan, size_t first, size_t head) {
  MojoAttentionArgs to = {};
  SetCommon(a, plan, &to);
  const size_t bytes = TypeSize(a.type);
  to.batch = std::min(plan.batch, a.batch - first);
  to.heads = to.key_heads = std::min(plan.heads, a.heads - head);
  to.q = static_cast<const char*>(a.q) + (first * a.q_steps.batch + head * a.q_steps.head) * bytes;
  to.q_steps = a.q_steps;
  to.y = static_cast<char*>(a.y) + (first * a.y_steps.batch + head * a.y_steps.head) * bytes;
  to.y_steps = a.y_steps;
  to.past_key = to.present_key = plan.keys;
  to.past_value = to.present_value = plan.values;
  to.past_lengths = plan.lengths + first;
  to.key_valid = a.key_valid == nullptr ? nullptr : a.key_valid + first * a.valid_step;
  to.width = a.nope + a.rotated;
  to.value_width = a.value_width;
  return to;
}

// AbsorbedArgs are the arguments of attention to latents, which all heads share.
MojoAttentionArgs AbsorbedArgs(const MojoLatentAttentionArgs& a, const Plan& plan) {
  MojoAttentionArgs to = {};
  SetCommon(a, plan, &to);
  to.batch = a.batch;
  to.heads = a.heads;
  to.key_heads = 1;
  to.q = plan.queries;
  to.q_steps = {a.queries * a.heads * Width(a), Width(a), a.heads * Width(a)};
  to.y = plan.attended;
  to.y_steps = {a.queries * a.heads * a.latent, a.latent, a.heads * a.latent};
  to.past_key = to.present_key = plan.latents;
  to.key_valid = a.key_valid;
  to.width = Width(a);
  to.value_width = a.latent;
  to.values_in_keys = 1;
  return to;
}

Plan PlanOf(const MojoLatentAttentionArgs& a, Room<256>* room) {
  Plan plan = {};
  const size_t bytes = TypeSize(a.type), rows = a.batch * a.queries;
  plan.naive = NaiveIsLess(a, a.room);
  plan.latents = a.present != nullptr ? a.present : room->Take<char>(a.batch * a.room * Width(a) * bytes);
  plan.lengths = room->Take<int64_t>(a.batch);
  if (plan.naive) {
    const size_t width = a.nope + a.rotated;
    const size_t head_bytes = std::max<size_t>(1, a.room * (width + a.value_width) * bytes);
    plan.batch = std::max<size_t>(1, std::min(a.batch, kHeadBytes / head_bytes));
    plan.heads = std::max<size_t>(1, std::min(a.heads, kHeadBytes / head_bytes / plan.batch));
    plan.keys = room->Take<char>(plan.batch * plan.heads * a.room * width * bytes);
    plan.values = room->Take<char>(plan.batch * plan.heads * a.room * a.value_width * bytes);
  } else {
    plan.queries = room->Take<char>(rows * a.heads * Width(a) * bytes);
    plan.attended = room->Take<char>(rows * a.heads * a.latent * bytes);
  }
  const MojoAttentionArgs attention = plan.naive ? NaiveArgs(a, plan, 0, 0) : AbsorbedArgs(a, plan);
  plan.attention = room->Take<char>(MojoAttentionScratch(&attention));
  return plan;
}

// ProductOf is a product with w from the given head on: into channels of keys, or of values, from latents, or back.
HeadProduct ProductOf(const MojoLatentAttentionArgs& a, size_t head, bool of_values, bool back) {
  HeadProduct p = {};
  const size_t of_head = a.nope + a.value_width;
  const size_t in = a.w_out_in ? 1 : a.heads * of_head, out = a.w_out_in ? a.latent : 1;  // from one to the next
  p.w = static_cast<const char*>(a.w) + (head * of_head + (of_values ? a.nope : 0)) * out * TypeSize(a.type);
  p.w_head = of_head * out;
  p.w_deep = back ? out : in;
  p.w_column = back ? in : out;
  p.batch = a.batch;
  p.heads = a.heads;
  p.rows = a.queries;
  p.depth = of_values ? a.value_width : a.nope;
  p.columns = a.latent;
  if (!back) std::swap(p.depth, p.columns);
  p.type = a.type;
  return p;
}

cudaError_t RunNaive(const MojoLatentAttentionArgs& a, const Plan& plan, cudaStream_t stream) {
  const size_t bytes = TypeSize(a.type);
  for (size_t first = 0; first < a.batch; first += plan.batch) {
    for (size_t head = 0; head < a.heads; head += plan.heads) {
      const MojoAttentionArgs attention = NaiveArgs(a, plan, first, head);
      for (const bool of_values : {false, true}) {
        HeadProduct p = ProductOf(a, head, of_values, false);
        p.x = static_cast<const char*>(plan.latents) + first * a.room * Width(a) * bytes;
        p.x_steps = {a.room * Width(a), 0, Width(a)};
        p.copied = of_values ? 0 : a.rotated;
        const size_t width = p.columns + p.copied;
        p.y = of_values ? plan.values : plan.keys;
        p.y_steps = {attention.heads * a.room * width, a.room * width, width};
        p.batch = attention.batch;
        p.heads = attention.heads;
        p.rows = a.room;
        p.lengths = attention.past_lengths;
        if (cudaError_t e = MultiplyByHeads(p, stream)) return e;
      }
      if (cudaError_t e = MojoCudaAttention(&attention, stream)) return e;
    }
  }
  return cudaSuccess;
}

cudaError_t RunAbsorbed(const MojoLatentAttentionArgs& a, const Plan& plan, cudaStream_t stream) {
  const MojoAttentionArgs attention = AbsorbedArgs(a, plan);
  HeadProduct absorb = ProductOf(a, 0, false, true);
  absorb.x = a.q;
  absorb.x_steps = a.q_steps;
  absorb.y = plan.queries;
  absorb.y_steps = attention.q_steps;
  absorb.copied = a.rotated;
  HeadProduct project = ProductOf(a, 0, true, false);
  project.x = plan.attended;
  project.x_steps = attention.y_steps;
  project.y = a.y;
  project.y_steps = a.y_steps;
  if (cudaError_t e = MultiplyByHeads(absorb, stream)) return e;
  if (cudaError_t e = MojoCudaAttention(&attention, stream)) return e;
  return MultiplyByHeads(project, stream);
}

// Rows of all heads are counted in ints, and heads are a dimension of a grid.
constexpr size_t kMost = size_t{1} << 30, kMostHeads = 65535;

}  // namespace
}  // namespace mojo

using namespace mojo;

size_t MojoLatentAttentionScratch(const MojoLatentAttentionArgs* args) {
  if (args->batch * args->heads == 0) return 0;
  Room<256> room;
  PlanOf(*args, &room);
  return room.used;
}

cudaError_t MojoCudaLatentAttention(const MojoLatentAttentionArgs* args, cudaStream_t stream) {
  const MojoLatentAttentionArgs& a = *args;
  if (a.batch * a.heads == 0) return cudaSuccess;
  if (a.batch * a.room > kMost || a.batch * a.queries * a.heads > kMost || a.heads > kMostHeads ||
      a.heads * (a.nope + a.value_width) > kMost || Width(a) > kMost) {
    return cudaErrorInvalidValue;
  }
  Room<256> room{static_cast<char*>(a.scratch)};
  const Plan plan = PlanOf(a, &room);
  const bool pieces = AllAligned(16, a.c, a.k_pe, a.past_latents, plan.latents) &&
                      a.latent * TypeSize(a.type) % 16 == 0 && a.rotated * TypeSize(a.type) % 16 == 0;
  const auto append = pieces ? RunAppend<uint4> : a.type == kMojoFloat32 ? RunAppend<float> : RunAppend<uint16_t>;
  if (cudaError_t e = append(a, plan.latents, plan.lengths, stream)) return e;
  if (a.queries == 0 || a.value_width == 0) return cudaSuccess;
  return plan.naive ? RunNaive(a, plan, stream) : RunAbsorbed(a, plan, stream);
}
