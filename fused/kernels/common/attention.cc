// Inputs and shape rules of Attention.
#include "common/attention.h"

#include <algorithm>

namespace mojo {
namespace {

const OpDef& def = kAttention;

// HeadDims are the dimensions of a tensor of heads, whichever their order.
struct HeadDims {
  int64_t batch, heads, length, width;
};

HeadDims Dims(const Shape& shape, bool by_token) {
  const int64_t* d = shape.dims;
  return {d[0], d[by_token ? 2 : 1], d[by_token ? 1 : 2], d[3]};
}

HeadSteps Steps(const HeadDims& d, bool by_token) {
  const auto heads = static_cast<size_t>(d.heads), length = static_cast<size_t>(d.length);
  const auto width = static_cast<size_t>(d.width);
  return {heads * length * width, by_token ? width : length * width, by_token ? heads * width : width};
}

// CheckRank checks that a tensor has the four dimensions of heads.
OrtStatus* CheckRank(const Api& api, size_t input, const Shape& shape) {
  if (shape.rank == 4) return nullptr;
  return Errorf(api, "mojo.%s: %s has shape %s; it must have 4 dimensions", def.name, def.input_names[input],
                ShapeText(shape).text);
}

// CheckCache checks past_key or past_value, which goes with k or v.
OrtStatus* CheckCache(const Api& api, size_t input, const Shape& past, const char* name, const Shape& added,
                      const HeadDims& want) {
  if (OrtStatus* s = CheckRank(api, input, past)) return s;
  const HeadDims got = Dims(past, false);
  if (got.batch == want.batch && got.heads == want.heads && got.width == want.width) return nullptr;
  return Errorf(api, "mojo.%s: %s has shape %s and %s %s; it must be [%lld,%lld,keys,%lld]", def.name,
                def.input_names[input], ShapeText(past).text, name, ShapeText(added).text,
                static_cast<long long>(want.batch), static_cast<long long>(want.heads),
                static_cast<long long>(want.width));
}

// ReadCache reads past_key, past_value and past_length.
OrtStatus* ReadCache(const Api& api, OrtKernelContext* context, const Shape& k, const HeadDims& k_dims, const Shape& v,
                     const HeadDims& v_dims, AttentionTensors* out) {
  Shape key, value, length;
  const void* lengths;
  if (OrtStatus* s = ReadOptionalInput(api, context, def, kAttentionPastKey, &out->past_key, &key)) return s;
  if (OrtStatus* s = ReadOptionalInput(api, context, def, kAttentionPastValue, &out->past_value, &value)) return s;
  if (OrtStatus* s = ReadOptionalInput(api, context, def, kAttentionPastLength, &lengths, &length)) return s;
  if (lengths != nullptr && key.rank == 4 && key.dims[2] < k_dims.length) {
    return Errorf(api, "mojo.%s: past_key has shape %s, which has no room for the %zu keys of k", def.name,
                  ShapeText(key).text, out->added);
  }
  if ((out->past_key == nullptr) != (out->past_value == nullptr) || (lengths != nullptr && out->past_key == nullptr)) {
    return Errorf(api, "mojo.%s: past_key and past_value must be given together, and with past_length", def.name);
  }
  out->room = out->added;
  if (out->past_key == nullptr) return nullptr;
  if (OrtStatus* s = CheckCache(api, kAttentionPastKey, key, "k", k, k_dims)) return s;
  if (OrtStatus* s = CheckCache(api, kAttentionPastValue, value, "v", v, v_dims)) return s;
  if (key.dims[2] != value.dims[2]) {
    return Errorf(api, "mojo.%s: past_key has shape %s and past_value %s; both must have as many keys", def.name,
                  ShapeText(key).text, ShapeText(value).text);
  }
  out->past = static_cast<size_t>(key.dims[2]);
  out->room = out->past + out->added;
  if (lengths == nullptr) return nullptr;
  out->room = out->past;
  out->past_lengths = static_cast<const int64_t*>(lengths);
  out->one_length = length.rank == 1 && length.dims[0] == 1;
  if (length.rank != 1 || (!out->one_length && length.dims[0] != k_dims.batch)) {
    return Errorf(api, "mojo.%s: past_length has shape %s; it must be [1] or [%lld]", def.name, ShapeText(length).text,
                  static_cast<long long>(k_dims.batch));
  }
  for (int64_t b = 0; b < length.dims[0] && !out->on_device; ++b) {
    const int64_t n = out->past_lengths[b];
    if (n >= 0 && static_cast<uint64_t>(n) <= out->past && out->added <= out->past - static_cast<size_t>(n)) continue;
    return Errorf(api,
                  "mojo.%s: past_length of sequence %lld is %lld; past_key has shape %s and k %zu keys, so it must be "
                  "from 0 to %lld",
                  def.name, static_cast<long long>(b), static_cast<long long>(n), ShapeText(key).text, out->added,
                  static_cast<long long>(out->past) - static_cast<long long>(out->added));
  }
  return nullptr;
}

// ReadBias reads bias, and how it broadcasts to the scores.
OrtStatus* ReadBias(const Api& api, OrtKernelContext* context, AttentionTensors* out) {
  Shape shape;
  const void* data;
  if (OrtStatus* s = ReadOptionalInput(api, context, def, kAttentionBias, &data, &shape)) return s;
  out->bias = static_cast<const float*>(data);
  if (data == nullptr) return nullptr;
  const size_t want[4] = {out->batch, out->heads, out->queries, out->Longest()};
  bool ok = shape.rank <= 4;
  size_t step = 1;
  for (size_t back = 1; ok && back <= shape.rank; ++back) {
    const auto dim = static_cast<size_t>(shape.dims[shape.rank - back]);
    out->bias_steps[4 - back] = dim == 1 ? 0 : step;
    const bool unknown = back == 1 && out->past_lengths != nullptr && out->on_device;
    ok = dim == 1 || (unknown ? dim >= want[3] : dim == want[4 - back]);
    if (back == 1) out->bias_keys = dim;
    step *= dim;
  }
  if (ok) return nullptr;
  return Errorf(api, "mojo.%s: bias has shape %s; it must broadcast to the scores, [%zu,%zu,%zu,%zu]", def.name,
                ShapeText(shape).text, want[0], want[1], want[2], want[3]);
}

// ReadMasks reads key_valid, bias and sink.
OrtStatus* ReadMasks(const Api& api, OrtKernelContext* context, AttentionTensors* out) {
  Shape valid, sink;
  const void* data;
  if (OrtStatus* s = ReadOptionalInput(api, context, def, kAttentionKeyValid, &data, &valid)) return s;
  out->key_valid = static_cast<const int64_t*>(data);
  if (data != nullptr) {
    if (valid.rank != 2 || static_cast<size_t>(valid.dims[0]) != out->batch ||
        static_cast<size_t>(valid.dims[1]) < out->Longest()) {
      return Errorf(api, "mojo.%s: key_valid has shape %s; with %zu sequences of up to %zu keys it must be [%zu,%zu]",
                    def.name, ShapeText(valid).text, out->batch, out->Longest(), out->batch, out->Longest());
    }
    out->valid_step = static_cast<size_t>(valid.dims[1]);
  }
  if (OrtStatus* s = ReadBias(api, context, out)) return s;
  if (OrtStatus* s = ReadOptionalInput(api, context, def, kAttentionSink, &data, &sink)) return s;
  out->sink = static_cast<const float*>(data);
  if (data != nullptr && (sink.rank != 1 || static_cast<size_t>(sink.dims[0]) != out->heads)) {
    return Errorf(api, "mojo.%s: sink has shape %s; with %zu heads it must be [%zu]", def.name, ShapeText(sink).text,
                  out->heads, out->heads);
  }
  return nullptr;
}

// MakePresent allocates present_key or present_value.
OrtStatus* MakePresent(const Api& api, OrtKernelContext* context, size_t output, const AttentionTensors& t,
                       size_t width, void** data) {
  Shape shape;
  shape.rank = 4;
  shape.own[0] = static_cast<int64_t>(t.batch);
  shape.own[1] = static_cast<int64_t>(t.key_heads);
  shape.own[2] = static_cast<int64_t>(t.room);
  shape.own[3] = static_cast<int64_t>(width);
  shape.dims = shape.own;
  return MakeOutput(api, context, def, output, shape, data);
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

OrtStatus* ReadAttention(const Api& api, OrtKernelContext* context, const AttentionAttributes& attributes,
                         AttentionTensors* out) {
  Shape q, k, v, y;
  if (OrtStatus* s = ReadInput(api, context, def, kAttentionQ, &out->q, &q)) return s;
  if (OrtStatus* s = ReadInput(api, context, def, kAttentionK, &out->k, &k)) return s;
  if (OrtStatus* s = ReadInput(api, context, def, kAttentionV, &out->v, &v)) return s;
  if (OrtStatus* s = CheckRank(api, kAttentionQ, q)) return s;
  if (OrtStatus* s = CheckRank(api, kAttentionK, k)) return s;
  if (OrtStatus* s = CheckRank(api, kAttentionV, v)) return s;
  const HeadDims q_dims = Dims(q, attributes.q_by_token), k_dims = Dims(k, attributes.k_by_token);
  const HeadDims v_dims = Dims(v, attributes.v_by_token);
  const bool whole = k_dims.heads == 0 ? q_dims.heads == 0 : q_dims.heads % k_dims.heads == 0;
  if (k_dims.batch != q_dims.batch || v_dims.batch != q_dims.batch || v_dims.heads != k_dims.heads || !whole ||
      v_dims.length != k_dims.length || k_dims.width != q_dims.width) {
    return Errorf(api,
                  "mojo.%s: q has shape %s, k %s and v %s; they must have one batch, q and k one width, k and v one "
                  "length and one number of heads, which divides that of q",
                  def.name, ShapeText(q).text, ShapeText(k).text, ShapeText(v).text);
  }
  out->batch = static_cast<size_t>(q_dims.batch);
  out->heads = static_cast<size_t>(q_dims.heads);
  out->key_heads = static_cast<size_t>(k_dims.heads);
  out->queries = static_cast<size_t>(q_dims.length);
  out->added = static_cast<size_t>(k_dims.length);
  out->width = static_cast<size_t>(q_dims.width);
  out->value_width = static_cast<size_t>(v_dims.width);
  out->q_steps = Steps(q_dims, attributes.q_by_token);
  out->k_steps = Steps(k_dims, attributes.k_by_token);
  out->v_steps = Steps(v_dims, attributes.v_by_token);
  const HeadDims y_dims{q_dims.batch, q_dims.heads, q_dims.length, v_dims.width};
  out->y_steps = Steps(y_dims, attributes.y_by_token);
  if (OrtStatus* s = ReadCache(api, context, k, k_dims, v, v_dims, out)) return s;
  if (OrtStatus* s = ReadMasks(api, context, out)) return s;
  y.rank = 4;
  y.own[0] = y_dims.batch;
  y.own[1] = attributes.y_by_token ? y_dims.length : y_dims.heads;
  y.own[2] = attributes.y_by_token ? y_dims.heads : y_dims.length;
  y.own[3] = y_dims.width;
  y.dims = y.own;
  if (OrtStatus* s = MakeOutput(api, context, def, 0, y, &out->y)) return s;
  if (OrtStatus* s = MakePresent(api, context, 1, *out, out->width, &out->present_key)) return s;
  return MakePresent(api, context, 2, *out, out->value_width, &out->present_value);
}

}  // namespace mojo
