#include "attention/cpu/attention_tasks.h"

#include <math.h>
#include <string.h>

#include <algorithm>

#include "cpu/backends.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// Slices of keys begin at a multiple of this when rows of the cache are read without panels.
constexpr size_t kSliceKeys = 64;

// Enough tasks that several threads end at about the same time.
constexpr size_t kTasks = 16;

// Tokens of so many bytes, of keys and values, are read head by head. More would leave the nearest caches before the
// last head, fewer would cost more softmaxes.
constexpr size_t kTokenBytes = size_t{1} << 16;

// The most keys between a prefetch and the key that is read.
constexpr size_t kMostAhead = 64;

// Pair is one sequence and one head of keys.
struct Pair {
  size_t number, batch, head;
  size_t past, length, slices;
  size_t q, y;  // its first elements
  const size_t* places = nullptr;

  Pair(const AttentionGo& go, size_t pair) : number(pair) {
    batch = pair / go.t.key_heads;
    head = pair % go.t.key_heads;
    past = go.t.Past(batch);
    length = past + go.t.added;
    slices = go.slices;
    q = batch * go.t.q_steps.batch;
    y = batch * go.t.y_steps.batch;
    if (go.t.paged == nullptr) return;
    const PagedSequence& of = go.t.paged[batch];
    past = length = of.length;
    slices = SlicesOf(go, length);
    q = of.token * go.t.q_steps.row;
    y = of.token * go.t.y_steps.row;
    places = of.places;
  }
};

// Head is the address of a head of a tensor.
const char* Head(const void* data, const HeadSteps& steps, size_t batch, size_t head, size_t size) {
  return static_cast<const char*>(data) + (batch * steps.batch + head * steps.head) * size;
}

// Cache is the keys, or the values, of a pair: the new rows, the past rows, and the memory that joins them.
struct Cache {
  const char *added, *past;
  char* present;
  size_t added_step, width, past_rows, room, size;
  const size_t* places;

  Cache(const AttentionGo& go, const Pair& pair, const void* k, const HeadSteps& steps, const void* past_data,
        void* present_data, size_t w)
      : added_step(steps.row), width(w), past_rows(go.t.past), room(go.t.room), size(go.size), places(pair.places) {
    added = Head(k, steps, pair.batch, pair.head, size);
    past =
        past_data == nullptr ? nullptr : static_cast<const char*>(past_data) + pair.number * past_rows * width * size;
    present = present_data == nullptr ? nullptr : static_cast<char*>(present_data) + pair.number * room * width * size;
  }

  // Rows are all keys, once they are complete.
  PairRows Rows() const { return present == nullptr ? PairRows{added, added_step, places} : PairRows{present, width}; }

  // Past are the past keys, if there are any.
  PairRows Past() const { return {past, width}; }

  // Stream copies the rows from begin to end - 1 of past to present.
  void Stream(size_t begin, size_t end) const {
    const size_t bytes = width * size;
    if (past != present) TheKernels()->stream(past + begin * bytes, present + begin * bytes, (end - begin) * bytes);
  }

  // Complete writes the rows from begin to end - 1 of present: rows from p.past to p.length - 1 are new.
  void Complete(const Pair& p, size_t begin, size_t end) const {
    if (present == nullptr) return;
    const size_t bytes = width * size;
    const auto copy = [&](size_t from, size_t to) {
      if (from >= to || past == present) return;
      memcpy(present + from * bytes, past + from * bytes, (to - from) * bytes);
    };
    copy(begin, std::min(end, p.past));
    copy(std::max(begin, p.length), end);
    for (size_t i = std::max(begin, p.past); i < std::min(end, p.length); ++i) {
      memcpy(present + i * bytes, added + (i - p.past) * added_step * size, bytes);
    }
  }
};

Cache Keys(const AttentionGo& go, const Pair& p) {
  return Cache(go, p, go.t.k, go.t.k_steps, go.t.past_key, go.t.present_key, go.t.width);
}

Cache Values(const AttentionGo& go, const Pair& p) {
  if (go.t.values_in_keys) return Keys(go, p);
  return Cache(go, p, go.t.v, go.t.v_steps, go.t.past_value, go.t.present_value, go.t.value_width);
}

// Span is a range of keys.
struct Span {
  size_t begin, end;
};

// Seen are the keys that a query of a pair may see, by its position.
Span Seen(const AttentionGo& go, const Pair& p, size_t query) {
  const AttentionAttributes& a = go.attributes;
  const size_t at = query + p.length, before = go.t.queries;  // the query's own key is at - before
  Span seen{0, p.length};
  if (a.causal) seen.end = at < before ? 0 : std::min(p.length, at - before + 1);
  const auto window = static_cast<size_t>(a.window);
  if (window > 0 && at + 1 > before + window) seen.begin = std::min(p.length, at + 1 - before - window);
  return seen;
}

// Slice is a part of the rows of a pair to visit: the rows that queries see or, if rows are completed meanwhile, all of
// them. It begins at a multiple of align.
Span Slice(const AttentionGo& go, const Pair& p, size_t slice, size_t align) {
  Span all{0, std::max(p.length, go.copies ? go.t.room : 0)};
  if (!go.copies && go.t.queries > 0) all.begin = std::min(Seen(go, p, 0).begin, p.past) / align * align;
  const size_t steps = (all.end - all.begin + align - 1) / align;
  return {std::min(all.end, all.begin + steps * slice / p.slices * align),
          std::min(all.end, all.begin + steps * (slice + 1) / p.slices * align)};
}

size_t HeadOf(const AttentionGo& go, const Pair& p, size_t member) {
  return go.attributes.cyclic ? member * go.t.key_heads + p.head : p.head * go.group + member;
}

char* RowOfY(const AttentionGo& go, const Pair& p, size_t row) {
  const HeadSteps& s = go.t.y_steps;
  return static_cast<char*>(go.t.y) +
         (p.y + HeadOf(go, p, row % go.group) * s.head + row / go.group * s.row) * go.row_size;
}

// Worker is the scratch memory of a worker.
struct Worker {
  float *q, *scores, *factors, *wide, *mean, *partial, *key_panel, *value_panel;
  AttentionState state;
  size_t *first, *last;
  const float** bias;

  Worker(const AttentionGo& go, HostRoom* room) {
    q = room->Take<float>((go.by_token ? go.t.key_heads : 1) * go.tile_rows * go.q_step);
    scores = room->Take<float>(go.tile_rows * kAttentionBlock);
    wide = room->Take<float>(go.panels ? 0 : kMostLanes * go.q_step);
    mean = room->Take<float>(go.total_step);
    partial = room->Take<float>(go.panels ? 0 : go.tile_rows * go.total_step);
    const size_t panel = go.panels && !go.shared ? kAttentionBlock : 0;
    key_panel = room->Take<float>(panel * go.t.width);
    value_panel = room->Take<float>(panel * go.total_step);
    factors = room->Take<float>(go.tile_rows);
    state.most = room->Take<float>(go.tile_rows);
    state.sum = room->Take<float>(go.tile_rows);
    state.total = room->Take<float>(go.tile_rows * go.total_step);
    first = room->Take<size_t>(go.tile_rows);
    last = room->Take<size_t>(go.tile_rows);
    bias = room->Take<const float*>(go.tile_rows);
  }
};

// Visit completes the rows of a pair from begin to end - 1 of present, and calls read with the addresses of keys and
// values. Streamed past rows are read from past, before they are copied: no processor cache holds the copy.
template <class Read>
void Visit(const AttentionGo& go, const Pair& p, size_t begin, size_t end, Read read) {
  const Cache keys = Keys(go, p), values = Values(go, p);
  const auto each = [&](auto body) {
    body(keys);
    if (!go.t.values_in_keys) body(values);
  };
  if (go.streams && end <= p.past) {
    read(keys.Past(), values.Past());
    return each([&](const Cache& c) { c.Stream(begin, end); });
  }
  each([&](const Cache& c) { c.Complete(p, begin, end); });
  read(keys.Rows(), values.Rows());
}

// ScalesOf are the factors of the keys and values of a head from begin to end - 1.
struct ScalesOf {
  float keys[kAttentionBlock + kMostLanes], values[kAttentionBlock + kMostLanes];

  ScalesOf(const AttentionGo& go, const size_t* places, size_t head, size_t begin, size_t end) {
    const PoolScales& s = *go.t.scales;
    for (size_t i = begin, next; i < end; i = next) {
      next = std::min(end, (i / s.block + 1) * s.block);
      const size_t at = places[i] / s.block * go.t.key_heads + head;
      std::fill(keys + (i - begin), keys + (next - begin), s.keys[at]);
      std::fill(values + (i - begin), values + (next - begin), s.values[at]);
    }
    std::fill_n(keys + (end - begin), kMostLanes, 0.0f);
    std::fill_n(values + (end - begin), kMostLanes, 0.0f);
  }
};

// Pack puts the keys and values from begin to end - 1 into the panels of a block.
void Pack(const AttentionGo& go, const Pair& p, const PairRows& keys, const PairRows& values, size_t begin, size_t end,
          float* key_panel, float* value_panel) {
  const size_t from = keys.places == nullptr ? begin : 0;
  AttentionPack a{keys.data + from * keys.step * go.size,
                  keys.step,
                  values.data + from * values.step * go.size,
                  values.step,
                  keys.places == nullptr ? nullptr : keys.places + begin,
                  nullptr,
                  nullptr,
                  go.t.width,
                  go.t.value_width,
                  end - begin,
                  key_panel,
                  value_panel};
  if (go.t.scales == nullptr) return go.fns.pack(a);
  const ScalesOf scales(go, keys.places, p.head, begin, end);
  a.key_scales = scales.keys;
  a.value_scales = scales.values;
  go.fns.pack(a);
}

// Mean writes the mean of all values of a pair.
void Mean(const AttentionGo& go, const Pair& p, float* to) {
  const PairRows values = Values(go, p).Rows();
  go.fns.mean(values.data, values.step, p.length, go.t.value_width, to);
}

// Partial is the state of one slice of a pair, from a row on.
AttentionState Partial(const AttentionGo& go, const Pair& p, size_t slice, size_t row) {
  const size_t at = (p.number * go.slices + slice) * go.rows + row;
  return {go.partial.most + at, go.partial.sum + at, go.partial.total + at * go.total_step};
}

// Begin makes the rows of a tile, with the state before any key.
AttentionTile Begin(const AttentionGo& go, const Worker& w, const Pair& p, size_t first_row, size_t rows, size_t slice,
                    const AttentionState& state, float* scaled) {
  const AttentionTensors& t = go.t;
  for (size_t r = 0; r < rows; ++r) {
    const size_t row = first_row + r, query = row / go.group, head = HeadOf(go, p, row % go.group);
    const char* q = static_cast<const char*>(t.q) + (p.q + head * t.q_steps.head + query * t.q_steps.row) * go.row_size;
    go.fns.query(q, go.attributes.scale, scaled + r * go.q_step, t.width, go.q_step);
    const Span seen = Seen(go, p, query);
    w.first[r] = seen.begin;
    w.last[r] = seen.end;
    if (t.bias != nullptr) {
      w.bias[r] = t.bias + p.batch * t.bias_steps[0] + head * t.bias_steps[1] + query * t.bias_steps[2];
    }
    // The sink counts once.
    const bool sinks = t.sink != nullptr && slice == 0 && t.sink[head] != -INFINITY;
    state.most[r] = sinks ? t.sink[head] : -INFINITY;
    state.sum[r] = sinks;
  }
  if (go.panels) std::fill(scaled + rows * go.q_step, scaled + go.tile_rows * go.q_step, 0.0f);
  std::fill(state.total, state.total + rows * go.total_step, 0.0f);
  AttentionTile a{};
  a.rows = rows;
  a.q = scaled;
  a.q_step = go.q_step;
  a.width = t.width;
  a.value_width = t.value_width;
  a.first = w.first;
  a.last = w.last;
  a.valid = go.valid == nullptr ? nullptr : go.valid + p.batch * go.valid_step;
  a.bias = t.bias == nullptr ? nullptr : w.bias;
  a.bias_step = t.bias_steps[3];
  a.softcap = go.attributes.softcap;
  a.scores = w.scores;
  a.factors = w.factors;
  a.wide = w.wide;
  a.most = state.most;
  a.sum = state.sum;
  a.total = state.total;
  a.total_step = go.total_step;
  a.partial = w.partial;
  return a;
}

// WorkOff is one slice of one tile.
void WorkOff(const AttentionGo& go, const Worker& w, const Pair& p, size_t tile, size_t slice) {
  const AttentionTensors& t = go.t;
  const size_t first_row = tile * go.tile_rows, rows = std::min(go.tile_rows, go.rows - first_row);
  const Span span = Slice(go, p, slice, go.panels ? kAttentionBlock : kSliceKeys);
  const AttentionState state = go.slices > 1 ? Partial(go, p, slice, first_row) : w.state;
  AttentionTile a = Begin(go, w, p, first_row, rows, slice, state, w.q);
  if (go.shared) {
    const size_t in_group = p.number - go.first_pair;
    a.key_panels = go.key_panels + in_group * go.blocks * kAttentionBlock * t.width;
    a.value_panels = go.value_panels + in_group * go.blocks * kAttentionBlock * go.total_step;
    a.begin = span.begin;
    a.end = std::min(span.end, p.length);
    if (a.begin < a.end) go.fns.add(a);
  }
  const size_t step = go.panels || go.streams ? kAttentionBlock : span.end - span.begin;
  for (size_t begin = span.begin, end; begin < span.end && !go.shared; begin = end) {
    end = std::min(span.end, begin + step);
    if (go.streams && !go.panels && begin < p.past) end = std::min(end, p.past);
    Visit(go, p, begin, end, [&](const PairRows& keys, const PairRows& values) {
      a.begin = begin;
      a.end = std::min(end, p.length);
      if (rows == 0 || a.begin >= a.end || a.end <= w.first[0] || a.begin >= w.last[rows - 1]) return;
      a.places = keys.places;
      a.keys = keys.data;
      a.key_step = keys.step;
      a.values = values.data;
      a.value_step = values.step;
      if (go.panels) {
        Pack(go, p, keys, values, a.begin, a.end, w.key_panel, w.value_panel);
        a.key_panels = w.key_panel;
        a.value_panels = w.value_panel;
        a.first_panel = begin;
      }
      go.fns.add(a);
    });
  }
  if (go.slices > 1) return;
  bool mean_known = false;
  for (size_t r = 0; r < rows; ++r) {
    AttentionRow row{state.most + r, state.sum + r, state.total + r * go.total_step, 1, 0, 0,
                     nullptr,        t.value_width, RowOfY(go, p, first_row + r)};
    if (state.sum[r] == 0 && go.attributes.empty_mean) {
      if (!mean_known) Mean(go, p, w.mean);
      mean_known = true;
      row.empty = w.mean;
    }
    go.fns.finish(row);
  }
}

// WorkOffToken is one slice of all heads of a sequence. It reads some keys of each head in turn: the heads of a key are
// side by side.
void WorkOffToken(const AttentionGo& go, const Worker& w, size_t sequence, size_t slice) {
  const AttentionTensors& t = go.t;
  const auto pair = [&](size_t head) { return Pair(go, sequence * t.key_heads + head); };
  const Pair one = pair(0);
  if (slice >= one.slices) return;
  AttentionTile a{};
  for (size_t head = 0; head < t.key_heads; ++head) {
    const Pair p = pair(head);
    a = Begin(go, w, p, 0, go.rows, slice, Partial(go, p, slice, 0), w.q + head * go.rows * go.q_step);
  }
  a.places = one.places;
  a.key_step = t.k_steps.row;
  a.value_step = t.v_steps.row;
  const Span span = Slice(go, one, slice, kSliceKeys);
  const size_t token = std::max<size_t>(1, t.key_heads * (t.width + t.value_width) * go.size);
  const size_t step = std::max(kMostLanes, std::min(kAttentionBlock, kTokenBytes / token / kMostLanes * kMostLanes));
  a.ahead = std::min(kMostAhead, (span.end - span.begin) / 2);
  for (a.begin = std::max(span.begin, w.first[0]); a.begin < span.end; a.begin = a.end) {
    a.end = std::min(span.end, a.begin + step);
    for (size_t head = 0; head < t.key_heads; ++head) {
      const AttentionState state = Partial(go, pair(head), slice, 0);
      a.q = w.q + head * go.rows * go.q_step;
      a.most = state.most;
      a.sum = state.sum;
      a.total = state.total;
      a.keys = Head(t.k, t.k_steps, 0, head, go.size);
      a.values = Head(t.v, t.v_steps, 0, head, go.size);
      if (t.scales == nullptr) {
        go.fns.add(a);
        continue;
      }
      const ScalesOf scales(go, a.places, head, a.begin, a.end);
      a.key_scales = scales.keys;
      a.value_scales = scales.values;
      go.fns.add(a);
    }
  }
}

// WorkOffTasks calls work with the tasks that no worker has begun, until there are none.
template <class Work>
void WorkOffTasks(const AttentionGo& go, size_t worker, size_t tasks, Work work) {
  HostRoom room{go.workers + worker * go.worker_bytes};
  const Worker w(go, &room);
  for (size_t task; (task = go.next->fetch_add(1, std::memory_order_relaxed)) < tasks;) work(w, task);
}

}  // namespace

size_t SlicesOf(const AttentionGo& go, size_t length) {
  return std::max<size_t>(1, std::min((kTasks + go.calls - 1) / go.calls, length / go.least));
}

size_t WorkerBytes(const AttentionGo& go) {
  HostRoom room;
  Worker(go, &room);
  return room.used;
}

void FillAttentionPanels(const AttentionGo& go, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    const size_t in_group = i / go.blocks, block = i % go.blocks;
    const Pair p(go, go.first_pair + in_group);
    const size_t from = block * kAttentionBlock, rows = std::max(p.length, go.copies ? go.t.room : 0);
    if (from >= rows) continue;
    const size_t to = std::min(rows, from + kAttentionBlock), at = (in_group * go.blocks + block) * kAttentionBlock;
    Visit(go, p, from, to, [&](const PairRows& keys, const PairRows& values) {
      if (from >= p.length || go.t.queries == 0 || from + kAttentionBlock <= Seen(go, p, 0).begin) return;
      Pack(go, p, keys, values, from, std::min(to, p.length), go.key_panels + at * go.t.width,
           go.value_panels + at * go.total_step);
    });
  }
}

void WorkOffTiles(void* state, size_t worker) {
  const auto& go = *static_cast<const AttentionGo*>(state);
  WorkOffTasks(go, worker, go.pair_count * go.tiles * go.slices, [&](const Worker& w, size_t task) {
    // The last tiles, which see the most keys, come first.
    const size_t tile = go.tiles - 1 - task / (go.pair_count * go.slices);
    const Pair p(go, go.first_pair + task / go.slices % go.pair_count);
    if (task % go.slices < p.slices) WorkOff(go, w, p, tile, task % go.slices);
  });
}

void WorkOffTokens(void* state, size_t worker) {
  const auto& go = *static_cast<const AttentionGo*>(state);
  WorkOffTasks(go, worker, go.t.batch * go.slices,
               [&](const Worker& w, size_t task) { WorkOffToken(go, w, task / go.slices, task % go.slices); });
}

void JoinSlices(const AttentionGo& go, size_t begin, size_t end) {
  for (size_t pair = begin; pair < end; ++pair) {
    const Pair p(go, pair);
    float* mean = nullptr;
    if (go.means != nullptr) {
      mean = go.means + pair * go.total_step;
      Mean(go, p, mean);
    }
    for (size_t row = 0; row < go.rows; ++row) {
      const size_t at = pair * go.slices * go.rows + row;
      go.fns.finish({go.partial.most + at, go.partial.sum + at, go.partial.total + at * go.total_step, p.slices,
                     go.rows, go.rows * go.total_step, mean, go.t.value_width, RowOfY(go, p, row)});
    }
  }
}

}  // namespace mojo
