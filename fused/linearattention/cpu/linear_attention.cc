// LinearAttention and CausalConv on the CPU.
//
// The columns of a head's state are independent, so each task of LinearAttention takes some columns of one head through
// all tokens, with its part of the state in the nearest cache. One token, a decode step, reads past and writes present;
// results do not depend on the division of columns. Columns of a head read the same keys and queries, so they take
// turns: each goes through kTurn tokens, which stay in the processor's caches, and the pages that they are in, too.
#include "linearattention/common/linear_attention.h"

#include <string.h>

#include <algorithm>

#include "cpu/backends.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

constexpr float kNoDecay = 1;
constexpr size_t kTurn = 256;

// Go is the shared state of one run's tasks.
struct Go {
  const LinearAttentionAttributes& attributes;
  ElementType type;
  const LinearAttentionTensors& t;
  const KernelTable& kernels;
  float *q = nullptr, *k = nullptr;  // widened and normalized; null: read as they are
  float* factors = nullptr;          // e^decay; may be null
  float* states = nullptr;           // room for the states; null: past and present are used
  size_t columns = 0;                // of a task: for one token those of a head, which lie side by side
  size_t blocks = 0;                 // of so many columns in a head
};

// Prepare makes the tokens from begin to end - 1 ready: their queries, keys and factors.
void Prepare(const Go& go, size_t begin, size_t end) {
  const LinearAttentionTensors& t = go.t;
  const ElementType type = go.type;
  const auto widen = [&](const void* from, size_t first, size_t count, float* to) {
    if (to == nullptr) return;
    if (!go.attributes.l2_norm) {
      go.kernels.to_float32(type, At(from, first * t.key, type), to + first * t.key, count * t.key);
      return;
    }
    for (size_t i = first; i < first + count; ++i) {
      go.kernels.unit(type, At(from, i * t.key, type), to + i * t.key, t.key, go.attributes.epsilon);
    }
  };
  widen(t.q, begin * t.q_heads, (end - begin) * t.q_heads, go.q);
  widen(t.k, begin * t.k_heads, (end - begin) * t.k_heads, go.k);
  if (go.factors != nullptr) {
    const size_t width = t.heads * t.channels;
    go.kernels.powers(t.decay + begin * width, go.factors + begin * width, (end - begin) * width);
  }
}

// ScanHead takes the blocks of columns from begin to end - 1 of a head of a sequence through all tokens.
void ScanHead(const Go& go, size_t b, size_t head, size_t begin, size_t end) {
  const LinearAttentionTensors& t = go.t;
  const ElementType type = go.type;
  const size_t each = t.y_heads / t.heads, state = (b * t.heads + head) * t.key * t.value;
  const size_t query = head * each * t.q_heads / t.y_heads, key = head * t.k_heads / t.heads;
  LinearScanArgs args{};
  args.q_step = t.q_heads * t.key;
  args.queries = each;
  args.k_step = t.k_heads * t.key;
  args.v_step = t.heads * t.value;
  args.type = type;
  args.factors = &kNoDecay;
  if (go.factors != nullptr) {
    args.factors_step = t.heads * t.channels;
    args.by_channel = t.channels > 1;
  }
  args.beta_step = t.beta_heads;
  args.y_step = t.y_heads * t.value;
  args.past = t.past == nullptr ? nullptr : t.past + state;
  args.room = go.states == nullptr ? nullptr : go.states + state;
  args.depth = t.key;
  args.columns = t.value;
  args.scale = go.attributes.scale;
  for (size_t token = 0; token < t.tokens; token += args.tokens) {
    // The last turn is never a single token: that would divide the columns in another way.
    const size_t left = t.tokens - token, row = b * t.tokens + token;
    args.tokens = left < 2 * kTurn ? left : kTurn;
    args.resumes = token > 0;
    args.present = t.present == nullptr || args.tokens < left ? nullptr : t.present + state;
    args.q = (go.q == nullptr ? static_cast<const float*>(t.q) : go.q) + (row * t.q_heads + query) * t.key;
    args.k = (go.k == nullptr ? static_cast<const float*>(t.k) : go.k) + (row * t.k_heads + key) * t.key;
    args.v = At(t.v, (row * t.heads + head) * t.value, type);
    if (go.factors != nullptr) args.factors = go.factors + (row * t.heads + head) * t.channels;
    if (t.beta != nullptr) args.beta = t.beta + row * t.beta_heads + (t.beta_heads > 1 ? head : 0);
    args.y = const_cast<char*>(At(t.y, (row * t.y_heads + head * each) * t.value, type));
    for (size_t block = begin; block < end; ++block) {
      const size_t first = block * go.columns;
      go.kernels.linear_scan(args, first, std::min(first + go.columns, t.value));
    }
  }
}

// Scan takes the blocks of columns of all heads from begin to end - 1 through all tokens.
void Scan(const Go& go, size_t begin, size_t end) {
  while (begin < end) {
    const size_t head = begin / go.blocks, first = begin % go.blocks, count = std::min(end - begin, go.blocks - first);
    ScanHead(go, head / go.t.heads, head % go.t.heads, first, first + count);
    begin += count;
  }
}

// ScanChannels takes states of one column, from number begin to end - 1, through all tokens.
void ScanChannels(const Go& go, size_t begin, size_t end) {
  const LinearAttentionTensors& t = go.t;
  while (begin < end) {
    const size_t b = begin / t.heads, first = begin % t.heads, count = std::min(end - begin, t.heads - first);
    const size_t row = b * t.tokens, state = b * t.heads * t.key;
    ChannelScanArgs args{};
    args.q = (go.q == nullptr ? static_cast<const float*>(t.q) : go.q) + row * t.key;
    args.k = (go.k == nullptr ? static_cast<const float*>(t.k) : go.k) + row * t.key;
    args.v = At(t.v, row * t.heads, go.type);
    args.type = go.type;
    args.decay = t.decay == nullptr ? nullptr : t.decay + row * t.heads * t.channels;
    args.by_key = t.decay != nullptr && t.channels > 1;
    args.y = const_cast<char*>(At(t.y, row * t.heads, go.type));
    args.past = t.past == nullptr ? nullptr : t.past + state;
    args.present = t.present == nullptr ? nullptr : t.present + state;
    args.room = go.states == nullptr ? nullptr : go.states + state;
    args.tokens = t.tokens;
    args.depth = t.key;
    args.channels = t.heads;
    args.scale = go.attributes.scale;
    go.kernels.channel_scan(args, first, first + count);
    begin += count;
  }
}

// LinearAttentionKernel is the state of one node.
struct LinearAttentionKernel : ScratchNode<LinearAttentionAttributes> {
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    LinearAttentionTensors t;
    LinearAttentionCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = ReadLinearAttention(&call, &t)) return s;
    const size_t rows = t.batch * t.tokens, state = t.batch * t.heads * t.key * t.value;
    if (rows == 0) {
      if (t.present == nullptr || t.present == t.past || state == 0) return nullptr;
      if (t.past == nullptr) {
        std::fill_n(t.present, state, 0.0f);
      } else {
        memcpy(t.present, t.past, state * sizeof(float));
      }
      return nullptr;
    }
    Go go{attributes, Input(kLinearAttentionQ), t, *TheKernels()};
    const bool widened = go.type != kFloat32 || attributes.l2_norm;
    const bool channels = t.value == 1 && t.q_heads == 1 && t.k_heads == 1 && t.y_heads == t.heads && t.beta == nullptr;
    const auto plan = [&](HostRoom* room) {
      if (widened) {
        go.q = room->Take<float>(rows * t.q_heads * t.key);
        go.k = room->Take<float>(rows * t.k_heads * t.key);
      }
      if (t.decay != nullptr && !channels) go.factors = room->Take<float>(rows * t.heads * t.channels);
      if (t.tokens > 1 || t.past == nullptr || t.present == nullptr) go.states = room->Take<float>(state);
    };
    HostScratch scratch;
    if (OrtStatus* s = scratch.Divide(api, context, memory, plan)) return s;
    if (widened || (t.decay != nullptr && !channels)) {
      const size_t width = (t.q_heads + t.k_heads) * t.key + t.heads * t.channels;
      if (OrtStatus* s = RunInTasks(api, context, Prepare, go, rows, width)) return s;
    }
    if (channels) return RunInTasks(api, context, ScanChannels, go, t.batch * t.heads, t.tokens * 4 * (t.key + 1));
    go.columns = std::min(t.tokens == 1 ? t.value : go.kernels.linear_columns, t.value);
    go.blocks = go.columns == 0 ? 0 : (t.value + go.columns - 1) / go.columns;
    return RunInTasks(api, context, Scan, go, t.batch * t.heads * go.blocks, t.tokens * (t.key + 1) * go.columns);
  }
};

// CausalConvKernel is the state of one node.
struct CausalConvKernel : NodeState<CausalConvAttributes> {
  ConvFn run = nullptr;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState::Init(init)) return s;
    run = TheKernels()->conv(Input(kCausalConvX));
    return nullptr;
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    CausalConvCall call(api, context, attributes);
    void *y, *present;
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = call.Make(0, &y)) return s;
    if (OrtStatus* s = call.Make(1, &present)) return s;
    const CausalConvSizes& n = call.sizes;
    const ConvArgs args = {call.data[kCausalConvX],
                           call.data[kCausalConvWeight],
                           call.data[kCausalConvBias],
                           call.data[kCausalConvPast],
                           y,
                           present,
                           n.C,
                           n.N,
                           n.W,
                           n.L,
                           attributes.silu};
    return RunInTasks(api, context, run, args, n.B * n.C, n.N * n.W);
  }
};

}  // namespace

const Backend kCPULinearAttention = MakeBackend<LinearAttentionKernel>(nullptr, MayInPlace<kLinearAttentionPast, 1>);
const Backend kCPUCausalConv = MakeBackend<CausalConvKernel>(nullptr, MayInPlace<kCausalConvPast, 1>);

}  // namespace mojo
