// Inputs and shape rules of LatentAttention.
#include "common/latent_attention.h"

namespace mojo {
namespace {

const OpDef& def = kLatentAttention;

HeadSteps Steps(size_t heads, size_t length, size_t width, bool by_token) {
  return {heads * length * width, by_token ? width : length * width, by_token ? heads * width : width};
}

// CheckLengths checks the numbers of past_length: tokens that past holds, and leaves room behind.
OrtStatus* CheckLengths(const Api& api, const Shape& length, const Shape& past, LatentTensors* out) {
  out->one_length = length.rank == 1 && length.dims[0] == 1;
  if (length.rank != 1 || (!out->one_length && static_cast<size_t>(length.dims[0]) != out->batch)) {
    return Errorf(api, "mojo.%s: past_length has shape %s; it must be [1] or [%zu]", def.name, ShapeText(length).text,
                  out->batch);
  }
  if (out->past < out->added) {
    return Errorf(api, "mojo.%s: past has shape %s, which has no room for the %zu tokens of c", def.name,
                  ShapeText(past).text, out->added);
  }
  for (int64_t b = 0; b < length.dims[0] && !out->on_device; ++b) {
    const int64_t n = out->past_lengths[b];
    if (n >= 0 && static_cast<uint64_t>(n) <= out->past - out->added) continue;
    return Errorf(
        api,
        "mojo.%s: past_length of sequence %lld is %lld; past has shape %s and c %zu tokens, so it must be from "
        "0 to %zu",
        def.name, static_cast<long long>(b), static_cast<long long>(n), ShapeText(past).text, out->added,
        out->past - out->added);
  }
  return nullptr;
}

// ReadPast reads past and past_length.
OrtStatus* ReadPast(const Api& api, OrtKernelContext* context, LatentTensors* out) {
  Shape past, length;
  const void* lengths;
  if (OrtStatus* s = ReadOptionalInput(api, context, def, kLatentAttentionPast, &out->past_latents, &past)) return s;
  if (OrtStatus* s = ReadOptionalInput(api, context, def, kLatentAttentionPastLength, &lengths, &length)) return s;
  out->room = out->added;
  if (out->past_latents == nullptr) {
    if (lengths == nullptr) return nullptr;
    return Errorf(api, "mojo.%s: past_length is given without past", def.name);
  }
  if (past.rank != 4 || static_cast<size_t>(past.dims[0]) != out->batch || past.dims[1] != 1 ||
      static_cast<size_t>(past.dims[3]) != out->Width()) {
    return Errorf(api, "mojo.%s: past has shape %s; it must be [%zu,1,tokens,%zu]", def.name, ShapeText(past).text,
                  out->batch, out->Width());
  }
  out->past = static_cast<size_t>(past.dims[2]);
  out->room = lengths == nullptr ? out->past + out->added : out->past;
  out->past_lengths = static_cast<const int64_t*>(lengths);
  return lengths == nullptr ? nullptr : CheckLengths(api, length, past, out);
}

OrtStatus* ReadValid(const Api& api, OrtKernelContext* context, LatentTensors* out) {
  Shape valid;
  const void* data;
  if (OrtStatus* s = ReadOptionalInput(api, context, def, kLatentAttentionKeyValid, &data, &valid)) return s;
  out->key_valid = static_cast<const int64_t*>(data);
  if (data == nullptr) return nullptr;
  if (valid.rank != 2 || static_cast<size_t>(valid.dims[0]) != out->batch ||
      static_cast<size_t>(valid.dims[1]) < out->Longest()) {
    return Errorf(api, "mojo.%s: key_valid has shape %s; with %zu sequences of up to %zu tokens it must be [%zu,%zu]",
                  def.name, ShapeText(valid).text, out->batch, out->Longest(), out->batch, out->Longest());
  }
  out->valid_step = static_cast<size_t>(valid.dims[1]);
  return nullptr;
}

OrtStatus* MakeOutput4(const Api& api, OrtKernelContext* context, size_t output, size_t a, size_t b, size_t c, size_t d,
                       void** data) {
  Shape shape;
  shape.rank = 4;
  const size_t dims[4] = {a, b, c, d};
  for (size_t i = 0; i < 4; ++i) shape.own[i] = static_cast<int64_t>(dims[i]);
  shape.dims = shape.own;
  return MakeOutput(api, context, def, output, shape, data);
}

}  // namespace

OrtStatus* ReadLatentAttention(const Api& api, OrtKernelContext* context, const LatentAttentionAttributes& attributes,
                               LatentTensors* out) {
  const bool q_by_token = attributes.attention.q_by_token, y_by_token = attributes.attention.y_by_token;
  Shape q, c, k_pe, w;
  if (OrtStatus* s = ReadInput(api, context, def, kLatentAttentionQ, &out->q, &q)) return s;
  if (OrtStatus* s = ReadInput(api, context, def, kLatentAttentionC, &out->c, &c)) return s;
  if (OrtStatus* s = ReadInput(api, context, def, kLatentAttentionKPe, &out->k_pe, &k_pe)) return s;
  if (OrtStatus* s = ReadInput(api, context, def, kLatentAttentionW, &out->w, &w)) return s;
  bool ok = q.rank == 4 && c.rank == 3 && k_pe.rank == 4 && w.rank == 2;
  if (ok) {
    const size_t in = attributes.w_out_in ? 1 : 0, outputs = static_cast<size_t>(w.dims[1 - in]);
    out->batch = static_cast<size_t>(q.dims[0]);
    out->heads = static_cast<size_t>(q.dims[q_by_token ? 2 : 1]);
    out->queries = static_cast<size_t>(q.dims[q_by_token ? 1 : 2]);
    out->added = static_cast<size_t>(c.dims[1]);
    out->latent = static_cast<size_t>(c.dims[2]);
    out->rotated = static_cast<size_t>(k_pe.dims[3]);
    ok = c.dims[0] == q.dims[0] && k_pe.dims[0] == q.dims[0] && k_pe.dims[1] == 1 && k_pe.dims[2] == c.dims[1] &&
         w.dims[in] == c.dims[2] && q.dims[3] >= k_pe.dims[3] && out->heads > 0 && outputs % out->heads == 0;
    if (ok) {
      out->nope = static_cast<size_t>(q.dims[3]) - out->rotated;
      ok = outputs / out->heads >= out->nope;
      out->value_width = ok ? outputs / out->heads - out->nope : 0;
    }
  }
  if (!ok) {
    return Errorf(
        api,
        "mojo.%s: q has shape %s, c %s, k_pe %s and w %s; with H heads of E + R channels they must be those of "
        "[B,H,S,E+R] in q's layout, [B,N,C], [B,1,N,R] and [C,H*(E+Dv)] in w's",
        def.name, ShapeText(q).text, ShapeText(c).text, ShapeText(k_pe).text, ShapeText(w).text);
  }
  out->q_steps = Steps(out->heads, out->queries, out->nope + out->rotated, q_by_token);
  out->y_steps = Steps(out->heads, out->queries, out->value_width, y_by_token);
  if (OrtStatus* s = ReadPast(api, context, out)) return s;
  if (OrtStatus* s = ReadValid(api, context, out)) return s;
  if (OrtStatus* s = MakeOutput4(api, context, 0, out->batch, y_by_token ? out->queries : out->heads,
                                 y_by_token ? out->heads : out->queries, out->value_width, &out->y)) {
    return s;
  }
  return MakeOutput4(api, context, 1, out->batch, 1, out->room, out->Width(), &out->present);
}

}  // namespace mojo
