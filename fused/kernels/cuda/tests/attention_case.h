// A call of Attention with random tensors, and its expected results, in double on the host.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "cuda/tests/host.h"

enum Padding { kAllValid, kLeft, kRight, kHoles, kNoneValid };

// Form is a way to use Attention.
struct Form {
  MojoType type = kMojoBFloat16;
  size_t batch = 1, key_heads = 1, group = 1;
  size_t queries = 1, added = 1, width = 64, value_width = 64;
  size_t past = 0;       // rows of past_key
  size_t lengths = 0;    // numbers of past_length; 0: left out
  bool cache = true;     // past_key is given
  bool in_place = true;  // with lengths: present_key is past_key
  bool presents = true;  // present_key and present_value are given
  bool causal = true;
  size_t window = 0;
  float scale = 0.3f, softcap = 0;
  bool mean = false, cyclic = false, sink = false;
  bool in_keys = false;   // values are the first channels of keys
  bool by_token[4] = {};  // q, k, v, y
  Padding padding = kAllValid;
  int bias = -1;      // a bit for each dimension that does not broadcast; -1: no bias
  size_t offset = 0;  // bytes off the alignment

  std::string Text() const {
    char text[240];
    snprintf(text, sizeof(text),
             "%s B%zu Hk%zu G%zu S%zu N%zu P%zu D%zu/%zu lengths %zu%s%s%s causal %d window %zu cap %g mean %d cyclic "
             "%d sink %d layout %d%d%d%d padding %d bias %d offset %zu%s",
             TypeName(type), batch, key_heads, group, queries, added, past, width, value_width, lengths,
             cache ? "" : " no cache", in_place ? " in place" : "", presents ? "" : " no presents", causal, window,
             softcap, mean, cyclic, sink, by_token[0], by_token[1], by_token[2], by_token[3], padding, bias, offset,
             in_keys ? " values in keys" : "");
    return text;
  }
};

inline mojo::HeadSteps Steps(size_t heads, size_t tokens, size_t width, bool by_token) {
  return {heads * tokens * width, by_token ? width : tokens * width, by_token ? heads * width : width};
}

// Case has the tensors of a form.
class Case {
 public:
  Case(const Form& form, Random* random)
      : f(form),
        heads(f.key_heads * f.group),
        room(f.lengths > 0 ? f.past : f.past + f.added),
        q(f.type, f.batch * heads * f.queries * f.width, f.offset),
        k(f.type, f.batch * f.key_heads * f.added * f.width, f.offset),
        v(f.type, f.batch * f.key_heads * f.added * f.value_width, f.offset),
        past_key(f.type, f.batch * f.key_heads * f.past * f.width, f.offset),
        past_value(f.type, f.batch * f.key_heads * f.past * f.value_width, f.offset),
        y(f.type, f.batch * heads * f.queries * f.value_width, f.offset),
        present_key(f.type, f.batch * f.key_heads * room * f.width, f.offset),
        present_value(f.type, f.batch * f.key_heads * room * f.value_width, f.offset),
        sink(kMojoFloat32, heads),
        past_length(std::max<size_t>(f.lengths, 1)),
        key_valid(f.batch * (room + 3)) {
    lengths.assign(f.batch, f.past);
    for (size_t i = 0; i < f.lengths; ++i) {
      const size_t most = f.past - f.added;
      past_length.host[i] =
          static_cast<int64_t>(random->Below(4) == 0 ? most * random->Below(2) : random->Below(most + 1));
    }
    for (size_t b = 0; b < f.batch && f.lengths > 0; ++b) lengths[b] = past_length.host[f.lengths == 1 ? 0 : b];
    sink.Fill(random, 2);
    // Times log2(e), these are infinite in float32.
    if (random->Below(4) == 0) sink.Set(random->Below(sink.count()), random->Below(2) == 0 ? 3e38f : -3e38f);
    Fill(random);
    FillValid(random);
    FillBias(random);
    for (Numbers* n : {&past_key, &past_value, &sink}) n->ToDevice();
    past_length.ToDevice();
    key_valid.ToDevice();
    SetArgs();
    scratch = std::make_unique<Numbers>(kMojoFloat32, MojoAttentionScratch(&args) / 4);
    args.scratch = scratch->device();
  }

  // Fill draws new queries, keys and values; if the cache has a length, rows past it are NaN.
  void Fill(Random* random) {
    for (Numbers* n : {&q, &k, &v}) {
      n->Fill(random, 1);
      n->ToDevice();
    }
    if (filled) return;
    filled = true;
    past_key.Fill(random, 1);
    past_value.Fill(random, 1);
    for (size_t pair = 0; pair < f.batch * f.key_heads && f.lengths > 0; ++pair) {
      for (size_t j = lengths[pair / f.key_heads]; j < f.past; ++j) {
        for (size_t d = 0; d < f.width; ++d) past_key.Set((pair * f.past + j) * f.width + d, NAN);
        for (size_t d = 0; d < f.value_width; ++d) past_value.Set((pair * f.past + j) * f.value_width + d, NAN);
      }
    }
  }

  // Check compares the outputs with the expected ones, and returns the first error, or "".
  std::string Check() {
    y.ToHost();
    std::vector<double> want(y.count());
    keys.resize(f.batch * f.key_heads);
    values.resize(keys.size());
    InParallel(keys.size(), [&](size_t begin, size_t end) {
      for (size_t pair = begin; pair < end; ++pair) {
        keys[pair] = Rows(past_key, k, args.k_steps, f.width, pair);
        values[pair] = f.in_keys ? keys[pair] : Rows(past_value, v, args.v_steps, f.value_width, pair);
      }
    });
    InParallel(f.batch * heads * f.queries, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) Row(i / f.queries / heads, i / f.queries % heads, i % f.queries, &want);
    });
    double most = 0, worst = 0;
    for (const double w : want) most = std::max(most, fabs(w));
    // A score's error is proportional to its size, and so is the error of its weight.
    const double greatest = 5 * f.scale * sqrt(static_cast<double>(f.width));
    const double bound = (f.type == kMojoFloat32 ? 8 + greatest : 2) * Unit(f.type) * most;
    size_t at = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double off = fabs(y.Get(i) - want[i]);
      if (!(off <= worst)) worst = isnan(off) ? HUGE_VAL : off, at = i;
    }
    share = std::max(share, bound > 0 ? worst / bound : 0);
    char text[160] = "";
    if (worst > bound) {
      snprintf(text, sizeof(text), "element %zu of y is %.9g, not %.9g (may be off %.3g)", at, y.Get(at), want[at],
               bound);
    } else if (f.presents && !Present(&past_key, k, args.k_steps, f.width, &present_key)) {
      snprintf(text, sizeof(text), "present_key is not the keys");
    } else if (f.presents && !f.in_keys && !Present(&past_value, v, args.v_steps, f.value_width, &present_value)) {
      snprintf(text, sizeof(text), "present_value is not the values");
    }
    for (const Numbers* n : {&q, &k, &v, &past_key, &past_value, &y, &present_key, &present_value}) {
      if (text[0] == 0 && !n->Guarded()) snprintf(text, sizeof(text), "it wrote beside a tensor");
    }
    if (text[0] == 0 && !scratch->Guarded()) snprintf(text, sizeof(text), "it wrote beside its scratch memory");
    return text;
  }

  // SetLength is for calls in a row on a cache in place.
  void SetLength(size_t n) {
    std::fill(lengths.begin(), lengths.end(), n);
    std::fill(past_length.host.begin(), past_length.host.end(), static_cast<int64_t>(n));
    past_length.ToDevice();
  }
  // Keep takes the cache as the call left it for the one before the next call.
  void Keep() {
    past_key.ToHost();
    past_value.ToHost();
  }

  const Form f;
  const size_t heads, room;
  Numbers q, k, v, past_key, past_value, y, present_key, present_value, sink;
  Ids past_length, key_valid;
  std::unique_ptr<Numbers> bias, scratch;
  std::vector<size_t> lengths;
  std::vector<std::vector<float>> keys, values;  // of each pair
  MojoAttentionArgs args = {};
  double share = 0;  // the worst error over its bound
  bool filled = false;

 private:
  void FillValid(Random* random) {
    for (size_t b = 0; b < f.batch; ++b) {
      const size_t length = lengths[b] + f.added, few = random->Below(length + 1);
      for (size_t j = 0; j < room + 3; ++j) {
        const bool is = f.padding == kAllValid || (f.padding == kLeft && j >= few) ||
                        (f.padding == kRight && j < few) || (f.padding == kHoles && random->Below(3) != 0);
        key_valid.host[b * (room + 3) + j] = is;
      }
    }
  }

  void FillBias(Random* random) {
    if (f.bias < 0) return;
    const size_t dims[4] = {f.batch, heads, f.queries, room};
    size_t step = 1;
    for (int i = 3; i >= 0; --i) {
      const bool full = (f.bias >> i & 1) != 0;
      args.bias_steps[i] = full && dims[i] != 1 ? step : 0;
      if (full) step *= dims[i];
    }
    bias = std::make_unique<Numbers>(kMojoFloat32, step);
    bias->Fill(random, 1);
    for (size_t i = 0; i < step; ++i) {
      if (random->Below(8) == 0) bias->Set(i, -INFINITY);
    }
    bias->ToDevice();
  }

  void SetArgs() {
    MojoAttentionArgs& a = args;
    a.q = q.device();
    a.k = k.device();
    a.v = v.device();
    a.q_steps = Steps(heads, f.queries, f.width, f.by_token[0]);
    a.k_steps = Steps(f.key_heads, f.added, f.width, f.by_token[1]);
    a.v_steps = Steps(f.key_heads, f.added, f.value_width, f.by_token[2]);
    a.y_steps = Steps(heads, f.queries, f.value_width, f.by_token[3]);
    a.y = y.device();
    if (f.cache) {
      a.past_key = past_key.device();
      a.past_value = past_value.device();
    }
    if (f.lengths > 0) {
      a.past_lengths = past_length.device;
      a.one_length = f.lengths == 1;
    }
    if (f.presents) {
      const bool in_place = f.lengths > 0 && f.in_place;
      a.present_key = in_place ? past_key.device() : present_key.device();
      a.present_value = in_place ? past_value.device() : present_value.device();
    }
    if (f.padding != kAllValid) {
      a.key_valid = key_valid.device;
      a.valid_step = room + 3;
    }
    if (f.bias >= 0) {
      a.bias = static_cast<const float*>(bias->device());
      a.bias_keys = room;
    }
    if (f.sink) a.sink = static_cast<const float*>(sink.device());
    a.batch = f.batch;
    a.heads = heads;
    a.key_heads = f.key_heads;
    a.queries = f.queries;
    a.added = f.added;
    a.past = f.past;
    a.room = room;
    a.width = f.width;
    a.value_width = f.value_width;
    a.scale = f.scale;
    a.causal = f.causal;
    a.window = f.window;
    a.softcap = f.softcap;
    a.empty_mean = f.mean;
    a.values_in_keys = f.in_keys;
    a.cyclic = f.cyclic;
    a.type = f.type;
  }

  // Rows are all keys, or values, of a pair.
  std::vector<float> Rows(const Numbers& past, const Numbers& added, const mojo::HeadSteps& steps, size_t width,
                          size_t pair) const {
    const size_t b = pair / f.key_heads, g = pair % f.key_heads, length = lengths[b] + f.added;
    std::vector<float> rows(length * width);
    for (size_t j = 0; j < length; ++j) {
      for (size_t d = 0; d < width; ++d) {
        rows[j * width + d] = j < lengths[b]
                                  ? past.Get((pair * f.past + j) * width + d)
                                  : added.Get(b * steps.batch + g * steps.head + (j - lengths[b]) * steps.row + d);
      }
    }
    return rows;
  }

  // Row computes a row of y.
  void Row(size_t b, size_t h, size_t i, std::vector<double>* want) const {
    const MojoAttentionArgs& a = args;
    const size_t g = f.cyclic ? h % f.key_heads : h / f.group, length = lengths[b] + f.added;
    const float *key = keys[b * f.key_heads + g].data(), *value = values[b * f.key_heads + g].data();
    std::vector<double> p(length), total(f.value_width), query(f.width);
    for (size_t d = 0; d < f.width; ++d) {
      query[d] = q.Get(b * a.q_steps.batch + h * a.q_steps.head + i * a.q_steps.row + d);
    }
    double most = f.sink ? sink.Get(h) : -HUGE_VAL, sum = 0;
    for (size_t j = 0; j < length; ++j, key += f.width) {
      double parts[4] = {};
      for (size_t d = 0; d < f.width; ++d) parts[d % 4] += query[d] * key[d];
      double s = (parts[0] + parts[1] + parts[2] + parts[3]) * f.scale;
      if (f.softcap > 0) s = f.softcap * tanh(s / f.softcap);
      if (f.bias >= 0) {
        s += bias->Get(b * a.bias_steps[0] + h * a.bias_steps[1] + i * a.bias_steps[2] + j * a.bias_steps[3]);
      }
      const auto at = static_cast<int64_t>(i + length) - static_cast<int64_t>(f.queries),
                 number = static_cast<int64_t>(j);
      const bool seen = (!f.causal || number <= at) &&
                        (f.window == 0 || number > at - static_cast<int64_t>(f.window)) &&
                        (f.padding == kAllValid || key_valid.host[b * (room + 3) + j] != 0);
      p[j] = seen ? s : -HUGE_VAL;
      most = std::max(most, p[j]);
    }
    if (f.sink) sum += exp(sink.Get(h) - most);
    for (size_t j = 0; j < length; ++j, value += f.in_keys ? f.width : f.value_width) {
      const double by = most == -HUGE_VAL ? (f.mean ? 1 : 0) : exp(p[j] - most);
      sum += by;
      for (size_t d = 0; d < f.value_width && by != 0; ++d) total[d] += by * value[d];
    }
    for (size_t d = 0; d < f.value_width; ++d) {
      (*want)[b * a.y_steps.batch + h * a.y_steps.head + i * a.y_steps.row + d] = sum == 0 ? 0 : total[d] / sum;
    }
  }

  // Present reports whether the present tensor is as expected, bit for bit.
  bool Present(Numbers* past, const Numbers& added, const mojo::HeadSteps& steps, size_t width, Numbers* present) {
    Numbers* const got = f.lengths > 0 && f.in_place ? past : present;
    const std::vector<char> before = past->bytes();
    const size_t bytes = SizeOf(f.type);
    got->ToHost();
    bool equal = true;
    for (size_t pair = 0; pair < f.batch * f.key_heads; ++pair) {
      const size_t b = pair / f.key_heads, g = pair % f.key_heads;
      for (size_t j = 0; j < room; ++j) {
        const bool is_new = j >= lengths[b] && j < lengths[b] + f.added;
        const char* const want =
            is_new ? added.bytes().data() + (b * steps.batch + g * steps.head + (j - lengths[b]) * steps.row) * bytes
                   : before.data() + (pair * f.past + j) * width * bytes;
        equal = equal && memcmp(got->bytes().data() + (pair * room + j) * width * bytes, want, width * bytes) == 0;
      }
    }
    return equal;
  }
};
