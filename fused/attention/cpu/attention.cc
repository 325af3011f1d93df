// Attention on the CPU.
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
  if (t.scales != nullptr) {
    const PoolFns& pool = *TheKernels()->pool(types.rows, t.scales->float8);
    fns.add = pool.add;
    fns.pack = pool.pack;
    go.size = 1;
  }
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

}  // namespace mojo
