// Tensors of Attention and LatentAttention.
#include "attention/common/attention.h"

#include <algorithm>

namespace mojo {
namespace {

// CheckLengths checks past_length, input number index: each length fits the cache and leaves room for new tokens.
OrtStatus* CheckLengths(const CallBase& call, size_t index, const CacheLengths& t) {
  const char* const* names = call.def().input_names;
  const size_t count = t.one_length ? 1 : t.batch;
  for (size_t b = 0; t.past_lengths != nullptr && !t.on_device && b < count; ++b) {
    const int64_t n = t.past_lengths[b], most = static_cast<int64_t>(t.past - t.added);
    if (n >= 0 && n <= most) continue;
    return Errorf(
        call.api(),
        "mojo.%s: %s of sequence %zu is %lld; with %s of shape %s and %zu tokens more it must be from 0 to %lld",
        call.def().name, names[index], b, static_cast<long long>(n), names[index - 1],
        ShapeText(call.shapes[index - 1]).text, t.added, static_cast<long long>(most));
  }
  return nullptr;
}

// SetLengths sets the sizes of the cache, and checks the tensors whose sizes follow from the numbers of past_length.
template <class Call>
OrtStatus* SetLengths(Call* call, size_t past_length, size_t key_valid, CacheLengths* t) {
  auto& z = call->sizes;
  t->batch = z.B;
  t->added = z.N;
  t->past = z.P;
  t->room = z.T;
  t->past_lengths = call->template Get<int64_t>(past_length);
  t->one_length = t->past_lengths != nullptr && call->shapes[past_length].dims[0] == 1;
  if (OrtStatus* s = CheckLengths(*call, past_length, *t)) return s;
  if (t->past_lengths == nullptr) return nullptr;
  z.L = t->Longest();
  return call->Check(key_valid);
}

// SetBias sets how bias broadcasts to the scores.
OrtStatus* SetBias(AttentionCall* call, AttentionTensors* t) {
  t->bias = call->Get<float>(kAttentionBias);
  if (t->bias == nullptr) return nullptr;
  const Shape& shape = call->shapes[kAttentionBias];
  size_t step = 1;
  for (size_t back = 1; back <= shape.rank; ++back) {
    const auto dim = static_cast<size_t>(shape.dims[shape.rank - back]);
    t->bias_steps[4 - back] = dim == 1 ? 0 : step;
    if (back == 1) t->bias_keys = dim;
    step *= dim;
  }
  if (t->past_lengths == nullptr) return nullptr;
  if (!t->on_device) return call->Check(kAttentionBias);
  if (shape.rank == 0 || t->bias_keys == 1 || t->bias_keys >= t->added) return nullptr;
  return Errorf(call->api(),
                "mojo.Attention: bias has shape %s; its last dimension must be 1 or at least %zu, the keys of k",
                ShapeText(shape).text, t->added);
}

}  // namespace

size_t CacheLengths::Longest() const {
  if (past_lengths != nullptr && on_device) return added;
  size_t longest = batch == 0 || past_lengths == nullptr ? past + added : 0;
  for (size_t b = 0; past_lengths != nullptr && b < (one_length ? 1 : batch); ++b) {
    longest = std::max(longest, Length(b));
  }
  return longest;
}

OrtStatus* ReadAttention(AttentionCall* read, AttentionTensors* out) {
  AttentionCall& call = *read;
  if (OrtStatus* s = SetLengths(&call, kAttentionPastLength, kAttentionKeyValid, out)) return s;
  const AttentionSizes& z = call.sizes;
  const AttentionAttributes& attributes = call.attributes;
  out->heads = z.H;
  out->key_heads = z.Hk;
  out->queries = z.S;
  out->width = z.D;
  out->value_width = z.Dv;
  out->q = call.data[kAttentionQ];
  out->k = call.data[kAttentionK];
  out->v = call.data[kAttentionV];
  out->q_steps = StepsOf(z.H, z.S, z.D, attributes.q_by_token);
  out->k_steps = StepsOf(z.Hk, z.N, z.D, attributes.k_by_token);
  out->v_steps = StepsOf(z.Hk, z.N, z.Dv, attributes.v_by_token);
  out->y_steps = StepsOf(z.H, z.S, z.Dv, attributes.y_by_token);
  out->past_key = call.data[kAttentionPastKey];
  out->past_value = call.data[kAttentionPastValue];
  out->key_valid = call.Get<int64_t>(kAttentionKeyValid);
  if (out->key_valid != nullptr) out->valid_step = static_cast<size_t>(call.shapes[kAttentionKeyValid].dims[1]);
  out->sink = call.Get<float>(kAttentionSink);
  if (OrtStatus* s = SetBias(&call, out)) return s;
  if (OrtStatus* s = call.Make(0, &out->y)) return s;
  if (OrtStatus* s = call.Make(1, &out->present_key)) return s;
  return call.Make(2, &out->present_value);
}

OrtStatus* ReadLatentAttention(LatentAttentionCall* read, LatentTensors* out) {
  LatentAttentionCall& call = *read;
  if (OrtStatus* s = SetLengths(&call, kLatentAttentionPastLength, kLatentAttentionKeyValid, out)) return s;
  const LatentAttentionSizes& z = call.sizes;
  const AttentionAttributes& attributes = call.attributes.attention;
  out->heads = z.H;
  out->queries = z.S;
  out->nope = z.F - z.R;
  out->rotated = z.R;
  out->latent = z.C;
  out->value_width = z.O / z.H - out->nope;
  out->q = call.data[kLatentAttentionQ];
  out->c = call.data[kLatentAttentionC];
  out->k_pe = call.data[kLatentAttentionKPe];
  out->w = call.data[kLatentAttentionW];
  out->q_steps = StepsOf(z.H, z.S, z.F, attributes.q_by_token);
  out->y_steps = StepsOf(z.H, z.S, out->value_width, attributes.y_by_token);
  out->past_latents = call.data[kLatentAttentionPast];
  out->key_valid = call.Get<int64_t>(kLatentAttentionKeyValid);
  if (out->key_valid != nullptr) out->valid_step = static_cast<size_t>(call.shapes[kLatentAttentionKeyValid].dims[1]);
  if (OrtStatus* s = call.Make(0, &out->y)) return s;
  return call.Make(1, &out->present);
}

}  // namespace mojo
