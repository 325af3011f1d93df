// Attention and PagedAttention on the CPU.
#include "attention/cpu/attention_run.h"

#include <math.h>
#include <string.h>

#include <algorithm>

#include "attention/cpu/attention_tasks.h"
#include "cpu/backends.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// The maximum number of workers.
constexpr size_t kMostWorkers = 64;

// The least keys, and elements of keys and values, that are worth a task.
constexpr size_t kFewKeys = 64;
constexpr size_t kSliceElements = size_t{1} << 14;

// Panels are not worth making for so few keys, unless rows fill several tiles.
constexpr size_t kNoPanels = 32;

// Panels take at most this much memory, unless one pair needs more.
constexpr size_t kPanelBytes = size_t{64} << 20;

// Elements of keys and values that are worth waking another thread for.
constexpr size_t kFewElements = size_t{1} << 15;

// Past keys and values of so many bytes leave the processor's caches before their next use.
constexpr size_t kStreamBytes = size_t{1} << 20;

size_t Padded(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Plan is where everything lies in the scratch memory.
struct Plan {
  char *present_key, *present_value, *workers;
  float *valid, *key_panels, *value_panels, *means;
  AttentionState partial{};

  Plan(const AttentionGo& go, bool needs_key, bool needs_value, bool has_valid, size_t worker_count, HostRoom* room) {
    const AttentionTensors& t = go.t;
    present_key = room->Take<char>(needs_key ? go.pairs * t.room * t.width * go.size : 0);
    present_value = room->Take<char>(needs_value ? go.pairs * t.room * t.value_width * go.size : 0);
    workers = room->Take<char>(worker_count * go.worker_bytes);
    valid = room->Take<float>(has_valid ? t.batch * go.valid_step : 0);
    const size_t panels = go.shared ? go.pair_count * go.blocks * kAttentionBlock : 0;
    key_panels = room->Take<float>(panels * t.width);
    value_panels = room->Take<float>(panels * go.total_step);
    const size_t slices = go.slices > 1 || go.by_token ? go.pairs * go.slices * go.rows : 0;
    partial.most = room->Take<float>(slices);
    partial.sum = room->Take<float>(slices);
    partial.total = room->Take<float>(slices * go.total_step);
    means = room->Take<float>(go.slices > 1 && go.attributes.empty_mean ? go.pairs * go.total_step : 0);
  }
};

// FillValid writes 0 for valid keys and minus infinity for others, and reports whether there are others.
bool FillValid(const AttentionTensors& t, size_t step, float* to) {
  bool all = true;
  for (size_t b = 0; b < t.batch; ++b) {
    const size_t n = t.Length(b);
    for (size_t j = 0; j < step; ++j) {
      const bool is = j >= n || t.key_valid[b * t.valid_step + j] != 0;
      to[b * step + j] = is ? 0 : -INFINITY;
      all = all && is;
    }
  }
  return !all;
}

// Work computes everything.
OrtStatus* Work(const Api& api, OrtKernelContext* context, AttentionGo* go, size_t at_a_time, size_t worker_count) {
  for (go->first_pair = 0; go->first_pair < go->pairs; go->first_pair += go->pair_count) {
    go->pair_count = std::min(at_a_time, go->pairs - go->first_pair);
    if (go->shared) {
      const size_t width = kAttentionBlock * (go->t.width + go->t.value_width);
      if (OrtStatus* s = RunInTasks(api, context, FillAttentionPanels, *go, go->pair_count * go->blocks, width)) {
        return s;
      }
    }
    std::atomic<size_t> next{0};
    go->next = &next;
    const auto work = go->by_token ? WorkOffTokens : WorkOffTiles;
    if (OrtStatus* s = ParallelFor(api, context, work, worker_count, go)) return s;
  }
  if (go->slices == 1 && !go->by_token) return nullptr;
  return RunInTasks(api, context, JoinSlices, *go, go->pairs, go->rows * go->slices * go->total_step);
}

// AttentionKernel is the state of one node.
struct AttentionKernel : ScratchNode<AttentionAttributes> {
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    AttentionTensors tensors;
    AttentionCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = ReadAttention(&call, &tensors)) return s;
    return RunAttention(api, context, memory, attributes, {Input(kAttentionQ), Input(kAttentionK)}, &tensors);
  }
};

// Step is the numbers of a running node.
struct Step {
  const Api& api;
  const PagedAttentionSizes& z;
  const int32_t *cum, *past, *table, *mapping;

  size_t Added(size_t b) const { return static_cast<size_t>(cum[b + 1]) - static_cast<size_t>(cum[b]); }
  size_t Length(size_t b) const { return static_cast<size_t>(past[b]) + Added(b); }

  // CheckSequences returns an error unless each sequence has its tokens in q and room in its blocks.
  OrtStatus* CheckSequences() const {
    for (size_t b = 0; b <= z.B; ++b) {
      const int64_t least = b == 0 ? 0 : cum[b - 1], most = b == 0 ? 0 : static_cast<int64_t>(z.S);
      if (cum[b] >= least && cum[b] <= most && (b < z.B || cum[b] == most)) continue;
      return Errorf(api,
                    "mojo.PagedAttention: element %zu of cumulative_sequence_length is %d after %lld; it must begin "
                    "with 0, not descend and end with %zu, the tokens of q",
                    b, static_cast<int>(cum[b]), static_cast<long long>(least), z.S);
    }
    for (size_t b = 0; b < z.B; ++b) {
      const size_t room = z.C * z.M;
      if (past[b] < 0 || Length(b) > room) {
        return Errorf(api,
                      "mojo.PagedAttention: past_seqlens of sequence %zu is %d; with %zu tokens more, it must be at "
                      "least 0 and fit into %zu blocks of %zu tokens",
                      b, static_cast<int>(past[b]), Added(b), z.C, z.M);
      }
      for (size_t i = 0; i * z.M < Length(b); ++i) {
        const int32_t block = table[b * z.C + i];
        if (block >= 0 && static_cast<size_t>(block) < z.N) continue;
        return Errorf(api,
                      "mojo.PagedAttention: block %zu of sequence %zu in block_table is %d; its %zu tokens need blocks "
                      "from 0 to %lld",
                      i, b, static_cast<int>(block), Length(b), static_cast<long long>(z.N) - 1);
      }
    }
    return nullptr;
  }

  // Place is the row of the pool of a token of a sequence.
  size_t Place(size_t b, size_t j) const { return static_cast<size_t>(table[b * z.C + j / z.M]) * z.M + j % z.M; }

  // Slots writes the row of the pool that each token is written to, SIZE_MAX if none, and checks that no two are the
  // same. sorted is memory for as many.
  OrtStatus* Slots(size_t* slots, size_t* sorted) const {
    size_t t = 0;
    for (size_t b = 0; b < z.B; ++b) {
      for (size_t i = 0; i < Added(b); ++i, ++t) {
        slots[t] = mapping == nullptr ? Place(b, static_cast<size_t>(past[b]) + i)
                   : mapping[t] < 0   ? SIZE_MAX
                                      : static_cast<size_t>(mapping[t]);
        if (slots[t] == SIZE_MAX || slots[t] < z.N * z.M) continue;
        return Errorf(api, "mojo.PagedAttention: slot_mapping of token %zu is %zu; the pool has %zu rows", t, slots[t],
                      z.N * z.M);
      }
    }
    std::copy_n(slots, z.S, sorted);
    std::sort(sorted, sorted + z.S);
    for (size_t i = 1; i < z.S; ++i) {
      if (sorted[i] != sorted[i - 1] || sorted[i] == SIZE_MAX) continue;
      return Errorf(api, "mojo.PagedAttention: two tokens are written to row %zu of the pool; give each its own, by %s",
                    sorted[i], mapping == nullptr ? "block_table and past_seqlens" : "slot_mapping");
    }
    return nullptr;
  }

  // Rows writes the row of each key of a sequence.
  void Rows(size_t b, size_t* rows) const {
    const size_t length = Length(b);
    for (size_t j = 0; j < length; j += z.M) {
      const size_t first = Place(b, j), end = std::min(length, j + z.M);
      for (size_t i = j; i < end; ++i) rows[i] = first + (i - j);
    }
  }
};

// Pool is a pool, and the new rows that are written to it.
struct Pool {
  const void *in, *added;
  char* out;
  size_t row;  // bytes

  void Write(const size_t* slots, size_t tokens) const {
    for (size_t t = 0; t < tokens; ++t) {
      if (slots[t] == SIZE_MAX) continue;
      memcpy(out + slots[t] * row, static_cast<const char*>(added) + t * row, row);
    }
  }
};

// CopyRows copies the rows from begin to end - 1 of a pool.
void CopyRows(const Pool& pool, size_t begin, size_t end) {
  memcpy(pool.out + begin * pool.row, static_cast<const char*>(pool.in) + begin * pool.row, (end - begin) * pool.row);
}

// PagedKernel is the state of one node. Sequences with the same number of tokens are one run of Attention, whose keys
// and values are rows of the pools.
struct PagedKernel : ScratchNode<PagedAttentionAttributes> {
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    PagedAttentionCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    const PagedAttentionSizes& z = call.sizes;
    const Step step{api,
                    z,
                    call.Get<int32_t>(kPagedAttentionCumulativeSequenceLength),
                    call.Get<int32_t>(kPagedAttentionPastSeqlens),
                    call.Get<int32_t>(kPagedAttentionBlockTable),
                    call.Get<int32_t>(kPagedAttentionSlotMapping)};
    if (OrtStatus* s = step.CheckSequences()) return s;
    size_t keys = 0;
    for (size_t b = 0; b < z.B; ++b) keys += step.Length(b);
    size_t *slots = nullptr, *sorted = nullptr, *rows = nullptr, *order = nullptr;
    PagedSequence* sequences = nullptr;
    const auto plan = [&](HostRoom* room) {
      slots = room->Take<size_t>(z.S);
      sorted = room->Take<size_t>(z.S);
      rows = room->Take<size_t>(keys + kAttentionBlock);
      order = room->Take<size_t>(z.B);
      sequences = room->Take<PagedSequence>(z.B);
    };
    HostScratch scratch;
    if (OrtStatus* s = scratch.Divide(api, context, memory, plan)) return s;
    if (OrtStatus* s = step.Slots(slots, sorted)) return s;

    void* y = nullptr;
    if (OrtStatus* s = call.Make(0, &y)) return s;
    const ElementType type = Input(kPagedAttentionQ);
    const size_t size = SizeOf(type);
    Pool pools[] = {{call.data[kPagedAttentionKeyCache], call.data[kPagedAttentionK], nullptr, z.Hk * z.D * size},
                    {call.data[kPagedAttentionValueCache], call.data[kPagedAttentionV], nullptr, z.Hk * z.Dv * size}};
    for (size_t i = 0; i < 2; ++i) {
      if (OrtStatus* s = call.Make(1 + i, &pools[i].out)) return s;
    }
    for (const Pool& pool : pools) {
      if (pool.row == 0) continue;
      if (pool.out != pool.in && z.N * z.M > 0) {
        if (OrtStatus* s = RunInTasks(api, context, CopyRows, pool, z.N * z.M, pool.row / size)) return s;
      }
      pool.Write(slots, z.S);
    }

    AttentionTensors t;
    t.heads = z.H;
    t.key_heads = z.Hk;
    t.width = z.D;
    t.value_width = z.Dv;
    t.q = call.data[kPagedAttentionQ];
    t.k = pools[0].out;
    t.v = pools[1].out;
    t.q_steps = {0, z.D, z.H * z.D};
    t.k_steps = {0, z.D, z.Hk * z.D};
    t.v_steps = {0, z.Dv, z.Hk * z.Dv};
    t.y_steps = {0, z.Dv, z.H * z.Dv};
    t.sink = call.Get<float>(kPagedAttentionSink);
    t.y = y;
    t.paged = sequences;
    AttentionAttributes a;
    a.scale = attributes.scale;
    a.causal = attributes.causal;
    a.window = attributes.window;
    a.softcap = attributes.softcap;
    a.cyclic = attributes.cyclic;
    for (size_t b = 0; b < z.B; ++b) order[b] = b;
    std::sort(order, order + z.B, [&](size_t i, size_t j) { return step.Added(i) < step.Added(j); });
    for (size_t first = 0; first < z.B; first += t.batch) {
      t.queries = step.Added(order[first]);
      size_t* end = rows;
      for (t.batch = 0; first + t.batch < z.B && step.Added(order[first + t.batch]) == t.queries; ++t.batch) {
        const size_t b = order[first + t.batch];
        sequences[t.batch] = {static_cast<size_t>(step.cum[b]), step.Length(b), end};
        step.Rows(b, end);
        end += step.Length(b);
      }
      if (t.queries == 0) continue;
      std::fill_n(end, kAttentionBlock, *rows);
      AttentionTensors run = t;  // a run may fill in omitted tensors
      if (OrtStatus* s = RunAttention(api, context, memory, a, {type, type}, &run)) return s;
    }
    return nullptr;
  }
};

}  // namespace

OrtStatus* RunAttention(const Api& api, OrtKernelContext* context, const HostMemory& memory,
                        const AttentionAttributes& attributes, const AttentionTypes& types, AttentionTensors* tensors) {
  AttentionTensors& t = *tensors;
  const size_t pairs = t.batch * t.key_heads;
  // If no tensor has an element, sizes may be anything.
  const bool no_y = pairs == 0 || t.heads == 0 || t.queries == 0 || t.value_width == 0;
  const bool no_cache = pairs == 0 || t.room == 0 || (t.width == 0 && t.value_width == 0);
  if (no_y && (no_cache || (t.present_key == nullptr && t.present_value == nullptr))) return nullptr;
  const bool needs_key = t.present_key == nullptr && t.past_key != nullptr;
  const bool needs_value = t.present_value == nullptr && t.past_value != nullptr;
  AttentionFns fns = *TheKernels()->attention(types.keys);
  fns.query = TheKernels()->attention(types.rows)->query;
  fns.finish = TheKernels()->attention(types.rows)->finish;
  AttentionGo go{attributes, t, fns};
  go.size = SizeOf(types.keys);
  go.row_size = SizeOf(types.rows);
  go.pairs = pairs;
  go.group = t.heads / t.key_heads;
  go.rows = no_y ? 0 : t.queries * go.group;
  size_t keys = t.Longest();
  for (size_t b = 0; t.paged != nullptr && b < t.batch; ++b) keys = std::max(keys, t.paged[b].length);
  go.panels = go.rows > (keys > kNoPanels || t.paged != nullptr ? kAttentionFew : kAttentionRows);
  go.by_token = t.paged != nullptr && !go.panels;
  // If past and present share memory, rows are not copied.
  go.copies = (t.present_key != nullptr || needs_key || t.present_value != nullptr || needs_value) &&
              (t.present_key != t.past_key || t.present_value != t.past_value);
  go.streams = go.copies && pairs * t.past * (t.width + t.value_width) * go.size >= kStreamBytes;
  go.tile_rows = go.panels ? kAttentionRows : std::max<size_t>(go.rows, 1);
  go.tiles = std::max<size_t>(1, (go.rows + go.tile_rows - 1) / go.tile_rows);
  go.shared = go.panels && go.tiles > 1;
  go.q_step = Padded(t.width, kMostLanes);
  go.total_step = Padded(t.value_width, 2 * TheKernels()->lanes);
  const size_t longest = std::max(keys, go.copies ? t.room : 0);
  go.blocks = (longest + kAttentionBlock - 1) / kAttentionBlock;
  go.valid_step = Padded(longest, kAttentionBlock) + kAttentionBlock;
  const size_t token = (t.width + t.value_width) * (go.by_token ? t.key_heads : 1);
  go.least = go.panels ? 4 * kAttentionBlock : std::max(kFewKeys, kSliceElements / std::max<size_t>(1, token));
  go.calls = (go.by_token ? 1 : t.paged == nullptr ? pairs : t.key_heads) * go.tiles;
  go.slices = SlicesOf(go, longest);
  const size_t panel_bytes = go.blocks * kAttentionBlock * (t.width + go.total_step) * sizeof(float);
  const size_t at_a_time =
      go.shared ? std::min(pairs, std::max<size_t>(1, kPanelBytes / std::max<size_t>(1, panel_bytes))) : pairs;
  go.pair_count = at_a_time;
  go.worker_bytes = WorkerBytes(go);
  const bool few = pairs * longest * (t.width + t.value_width) < kFewElements && !go.panels;
  const size_t worker_count =
      few ? 1 : std::min(kMostWorkers, (go.by_token ? t.batch : at_a_time * go.tiles) * go.slices);
  const bool has_valid = t.key_valid != nullptr;
  HostRoom count;
  Plan(go, needs_key, needs_value, has_valid, worker_count, &count);
  HostScratch scratch;
  if (OrtStatus* s = scratch.Take(api, context, memory, count.used)) return s;
  HostRoom room{scratch.memory()};
  const Plan plan(go, needs_key, needs_value, has_valid, worker_count, &room);
  if (needs_key) t.present_key = plan.present_key;
  if (needs_value) t.present_value = plan.present_value;
  if (has_valid && FillValid(t, go.valid_step, plan.valid)) go.valid = plan.valid;
  go.workers = plan.workers;
  go.partial = plan.partial;
  if (go.slices > 1 && attributes.empty_mean) go.means = plan.means;
  go.key_panels = plan.key_panels;
  go.value_panels = plan.value_panels;
  return Work(api, context, &go, at_a_time, worker_count);
}

const Backend kCPUAttention = MakeBackend<AttentionKernel>(nullptr);
const Backend kCPUPagedAttention = MakeBackend<PagedKernel>(nullptr);

}  // namespace mojo
