// LatentAttention on the CPU.
#include <string.h>

#include <algorithm>

#include "attention/common/latent_form.h"
#include "attention/cpu/attention_run.h"
#include "cpu/backends.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// Rows that a product takes at a time.
constexpr size_t kRows = 96;

// Keys and values of heads take at most this much memory at a time, unless one head needs more.
constexpr size_t kHeadBytes = size_t{64} << 20;

// LatentGo is the shared state of a run's tasks.
struct LatentGo {
  const LatentTensors& t;
  ElementType type = kFloat32;
  size_t size = 0;  // of an element
  bool w_out_in = false;
  ProductFn product = nullptr;
  WeightedSumFn sum = nullptr;
  char* present = nullptr;  // [batch, room, latent + rotated]
  // Absorbed: of a head, the rows of all queries one after the other.
  float *q = nullptr, *y = nullptr;  // [heads, rows, E + R or Dv], widened
  float* absorbed = nullptr;         // [rows, heads, C + R]
  const float* attended = nullptr;   // [rows, heads, C]
  // Naive: of one sequence, and the heads from first_head on.
  size_t sequence = 0, length = 0, first_head = 0;
  const float* wide = nullptr;               // latents [length, C + R]
  float *keys = nullptr, *values = nullptr;  // [head, length, E + R or Dv]

  size_t Blocks() const { return (length + kRows - 1) / kRows; }

  // Product multiplies rows with w: into channels of keys or values from inputs (C), or back.
  void Product(size_t head, bool of_values, bool back, const float* const* x, size_t rows, float* y,
               size_t y_stride) const {
    const size_t all = t.heads * (t.nope + t.value_width), width = of_values ? t.value_width : t.nope;
    const size_t first = head * (t.nope + t.value_width) + (of_values ? t.nope : 0);
    ProductArgs args{};
    args.w = static_cast<const char*>(t.w) + first * (w_out_in ? t.latent : 1) * size;
    args.stride = w_out_in ? t.latent : all;
    args.by_rows = w_out_in != back;
    args.x = x;
    args.tokens = rows;
    args.depth = back ? width : t.latent;
    args.width = back ? t.latent : width;
    args.y = y;
    args.y_stride = y_stride;
    if (args.depth > 0) return product(args);
    for (size_t i = 0; i < rows; ++i) std::fill_n(y + i * y_stride, args.width, 0.0f);
  }
};

// Widen writes n elements as float32.
void Widen(const LatentGo& go, const void* from, float* to, size_t n) {
  TheKernels()->to_float32(go.type, from, to, n);
}

// WriteToken writes the latent and the rotated channels of an added token, counted over all sequences.
void WriteToken(const LatentGo& go, size_t token, char* to) {
  const size_t latent = go.t.latent * go.size, rotated = go.t.rotated * go.size;
  memcpy(to, static_cast<const char*>(go.t.c) + token * latent, latent);
  if (rotated > 0) {  // else k_pe may be null
    memcpy(to + latent, static_cast<const char*>(go.t.k_pe) + token * rotated, rotated);
  }
}

// CompletePresent writes the tokens from begin to end - 1 of present, counted over all sequences.
void CompletePresent(const LatentGo& go, size_t begin, size_t end) {
  const LatentTensors& t = go.t;
  const size_t bytes = t.Width() * go.size;
  for (size_t i = begin; i < end; ++i) {
    const size_t b = i / t.room, token = i % t.room;
    char* to = go.present + i * bytes;
    if (token >= t.Past(b) && token < t.Length(b)) {
      WriteToken(go, b * t.added + token - t.Past(b), to);
    } else if (go.present != t.past_latents) {
      memcpy(to, static_cast<const char*>(t.past_latents) + (b * t.past + token) * bytes, bytes);
    }
  }
}

// Absorb multiplies one head's queries with w, for products with latents. state is a LatentGo.
void Absorb(void* state, size_t head) {
  const auto& go = *static_cast<const LatentGo*>(state);
  const LatentTensors& t = go.t;
  const size_t rows = t.batch * t.queries, width = t.nope + t.rotated, step = t.heads * t.Width();
  float* wide = go.q + head * rows * width;
  for (size_t first = 0; first < rows; first += kRows) {
    const size_t count = std::min(kRows, rows - first);
    const float* x[kRows];
    for (size_t i = 0; i < count; ++i) {
      const size_t row = first + i;
      const size_t at = row / t.queries * t.q_steps.batch + head * t.q_steps.head + row % t.queries * t.q_steps.row;
      Widen(go, static_cast<const char*>(t.q) + at * go.size, wide + row * width, width);
      x[i] = wide + row * width;
      memcpy(go.absorbed + row * step + head * t.Width() + t.latent, x[i] + t.nope, t.rotated * sizeof(float));
    }
    go.Product(head, false, true, x, count, go.absorbed + first * step + head * t.Width(), step);
  }
}

// Project multiplies one head's sum of latents with w. state is a LatentGo.
void Project(void* state, size_t head) {
  const auto& go = *static_cast<const LatentGo*>(state);
  const LatentTensors& t = go.t;
  const size_t rows = t.batch * t.queries, width = t.value_width;
  float* wide = go.y + head * rows * width;
  const float one = 1;
  for (size_t first = 0; first < rows; first += kRows) {
    const size_t count = std::min(kRows, rows - first);
    const float* x[kRows];
    for (size_t i = 0; i < count; ++i) x[i] = go.attended + ((first + i) * t.heads + head) * t.latent;
    go.Product(head, true, false, x, count, wide + first * width, width);
    for (size_t i = 0; i < count; ++i) {
      const size_t row = first + i;
      const size_t at = row / t.queries * t.y_steps.batch + head * t.y_steps.head + row % t.queries * t.y_steps.row;
      const float* from = wide + row * width;
      go.sum({&from, &one, 1, width, static_cast<char*>(t.y) + at * go.size});
    }
  }
}

// WidenLatents widens the tokens from begin to end - 1 of a sequence.
void WidenLatents(const LatentGo& go, size_t begin, size_t end) {
  const size_t width = go.t.Width(), first = go.sequence * go.t.room;
  Widen(go, go.present + (first + begin) * width * go.size, const_cast<float*>(go.wide) + begin * width,
        (end - begin) * width);
}

// Expand makes keys and values of some tokens, for one head. state is a LatentGo.
void Expand(void* state, size_t task) {
  const auto& go = *static_cast<const LatentGo*>(state);
  const LatentTensors& t = go.t;
  const size_t head = task / go.Blocks(), first = task % go.Blocks() * kRows;
  const size_t count = std::min(kRows, go.length - first), width = t.nope + t.rotated;
  float* keys = go.keys + (head * go.length + first) * width;
  float* values = go.values + (head * go.length + first) * t.value_width;
  const float* x[kRows];
  for (size_t i = 0; i < count; ++i) {
    x[i] = go.wide + (first + i) * t.Width();
    memcpy(keys + i * width + t.nope, x[i] + t.latent, t.rotated * sizeof(float));
  }
  go.Product(go.first_head + head, false, false, x, count, keys, width);
  go.Product(go.first_head + head, true, false, x, count, values, t.value_width);
}

// RunNaive makes keys and values of a few heads of a sequence at a time, and attends to them.
OrtStatus* RunNaive(const Api& api, OrtKernelContext* context, const HostMemory& memory,
                    const AttentionAttributes& attributes, LatentGo* go) {
  const LatentTensors& t = go->t;
  const size_t longest = t.Longest(), width = t.nope + t.rotated;
  const size_t head_bytes = longest * (width + t.value_width) * sizeof(float);
  const size_t at_a_time = std::max<size_t>(1, std::min(t.heads, kHeadBytes / std::max<size_t>(1, head_bytes)));
  const bool widens = go->type != kFloat32;
  const auto plan = [&](HostRoom* room) {
    if (t.present == nullptr) go->present = room->Take<char>(t.batch * t.room * t.Width() * go->size);
    go->wide = room->Take<float>(widens ? longest * t.Width() : 0);
    go->keys = room->Take<float>(at_a_time * longest * width);
    go->values = room->Take<float>(at_a_time * longest * t.value_width);
  };
  HostScratch scratch;
  if (OrtStatus* s = scratch.Divide(api, context, memory, plan)) return s;
  if (OrtStatus* s = RunInTasks(api, context, CompletePresent, *go, t.batch * t.room, t.Width())) return s;
  const float* const wide = go->wide;
  for (go->sequence = 0; go->sequence < t.batch; ++go->sequence) {
    go->length = t.Length(go->sequence);
    go->wide = wide;
    if (!widens) {
      go->wide = reinterpret_cast<const float*>(go->present) + go->sequence * t.room * t.Width();
    } else if (OrtStatus* s = RunInTasks(api, context, WidenLatents, *go, go->length, t.Width())) {
      return s;
    }
    for (go->first_head = 0; go->first_head < t.heads; go->first_head += at_a_time) {
      AttentionTensors a;
      a.batch = 1;
      a.heads = a.key_heads = std::min(at_a_time, t.heads - go->first_head);
      if (OrtStatus* s = ParallelFor(api, context, Expand, a.heads * go->Blocks(), go)) return s;
      a.queries = t.queries;
      a.added = a.room = go->length;
      a.width = width;
      a.value_width = t.value_width;
      const auto at = [&](const HeadSteps& steps) {
        return (go->sequence * steps.batch + go->first_head * steps.head) * go->size;
      };
      a.q = static_cast<const char*>(t.q) + at(t.q_steps);
      a.q_steps = t.q_steps;
      a.k = go->keys;
      a.k_steps = {0, go->length * width, width};
      a.v = go->values;
      a.v_steps = {0, go->length * t.value_width, t.value_width};
      a.y = static_cast<char*>(t.y) + at(t.y_steps);
      a.y_steps = t.y_steps;
      a.key_valid = t.key_valid == nullptr ? nullptr : t.key_valid + go->sequence * t.valid_step;
      a.valid_step = t.valid_step;
      if (OrtStatus* s = RunAttention(api, context, memory, attributes, {go->type, kFloat32}, &a)) return s;
    }
  }
  return nullptr;
}

// RunAbsorbed attends to the latents, which are the keys of all heads; their first channels are the values.
OrtStatus* RunAbsorbed(const Api& api, OrtKernelContext* context, const HostMemory& memory,
                       const AttentionAttributes& attributes, LatentGo* go) {
  const LatentTensors& t = go->t;
  const size_t rows = t.batch * t.queries;
  char* added = nullptr;
  float* attended = nullptr;
  const auto plan = [&](HostRoom* room) {
    added = room->Take<char>(t.batch * t.added * t.Width() * go->size);
    go->q = room->Take<float>(t.heads * rows * (t.nope + t.rotated));
    go->absorbed = room->Take<float>(t.heads * rows * t.Width());
    attended = room->Take<float>(t.heads * rows * t.latent);
    go->y = room->Take<float>(t.heads * rows * t.value_width);
  };
  HostScratch scratch;
  if (OrtStatus* s = scratch.Divide(api, context, memory, plan)) return s;
  go->attended = attended;
  for (size_t i = 0; i < t.batch * t.added; ++i) WriteToken(*go, i, added + i * t.Width() * go->size);
  AttentionTensors a;
  a.batch = t.batch;
  a.heads = t.heads;
  a.key_heads = 1;
  a.queries = t.queries;
  a.added = t.added;
  a.width = t.Width();
  a.value_width = t.latent;
  a.values_in_keys = true;
  a.past = t.past;
  a.room = t.room;
  a.q = go->absorbed;
  a.q_steps = {t.queries * t.heads * t.Width(), t.Width(), t.heads * t.Width()};
  a.k = added;
  a.k_steps = {t.added * t.Width(), 0, t.Width()};
  a.past_key = t.past_latents;
  a.past_lengths = t.past_lengths;
  a.one_length = t.one_length;
  a.key_valid = t.key_valid;
  a.valid_step = t.valid_step;
  a.y = attended;
  a.y_steps = {t.queries * t.heads * t.latent, t.latent, t.heads * t.latent};
  a.present_key = t.present;
  if (OrtStatus* s = ParallelFor(api, context, Absorb, t.heads, go)) return s;
  if (OrtStatus* s = RunAttention(api, context, memory, attributes, {kFloat32, go->type}, &a)) return s;
  return ParallelFor(api, context, Project, t.heads, go);
}

// LatentKernel is the state of one node.
struct LatentKernel : ScratchNode<LatentAttentionAttributes> {
  // Compute takes the form with fewer multiplications: naive, with keys and values of all tokens, or absorbed, with the
  // latents as the keys of all heads.
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    LatentTensors t;
    LatentAttentionCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = ReadLatentAttention(&call, &t)) return s;
    LatentGo go{t};
    go.type = Input(kLatentAttentionQ);
    go.size = SizeOf(go.type);
    go.w_out_in = attributes.w_out_in;
    go.product = TheKernels()->product(go.type);
    go.sum = TheKernels()->weighted_sum(go.type);
    go.present = static_cast<char*>(t.present);
    const auto run = NaiveIsLess(t, t.Longest()) ? RunNaive : RunAbsorbed;
    return run(api, context, memory, attributes.attention, &go);
  }
};

}  // namespace

const Backend kCPULatentAttention = MakeBackend<LatentKernel>(nullptr);

}  // namespace mojo
