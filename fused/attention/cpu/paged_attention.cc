// PagedAttention and QPagedAttention on the CPU.
#include <float.h>
#include <math.h>
#include <string.h>

#include <algorithm>

#include "attention/cpu/attention_run.h"
#include "cpu/backends.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

// Step is the sizes and the numbers of a running node.
struct Step {
  const CallBase& call;
  PagedAttentionSizes z;
  const int32_t *cum, *past, *table, *mapping;

  template <class Call>
  Step(const Call& of, size_t slot_mapping)
      : call(of),
        z{of.sizes.S, of.sizes.H, of.sizes.D, of.sizes.Hk, of.sizes.Dv, of.sizes.N, of.sizes.M, of.sizes.B, of.sizes.C},
        cum(of.template Get<int32_t>(kPagedAttentionCumulativeSequenceLength)),
        past(of.template Get<int32_t>(kPagedAttentionPastSeqlens)),
        table(of.template Get<int32_t>(kPagedAttentionBlockTable)),
        mapping(of.template Get<int32_t>(slot_mapping)) {}

  size_t Added(size_t b) const { return static_cast<size_t>(cum[b + 1]) - static_cast<size_t>(cum[b]); }
  size_t Length(size_t b) const { return static_cast<size_t>(past[b]) + Added(b); }

  // CheckSequences returns an error unless each sequence has its tokens in q and room in its blocks.
  OrtStatus* CheckSequences() const {
    for (size_t b = 0; b <= z.B; ++b) {
      const int64_t least = b == 0 ? 0 : cum[b - 1], most = b == 0 ? 0 : static_cast<int64_t>(z.S);
      if (cum[b] >= least && cum[b] <= most && (b < z.B || cum[b] == most)) continue;
      return Errorf(call.api(),
                    "mojo.%s: element %zu of cumulative_sequence_length is %d after %lld; it must begin "
                    "with 0, not descend and end with %zu, the tokens of q",
                    call.def().name, b, static_cast<int>(cum[b]), static_cast<long long>(least), z.S);
    }
    for (size_t b = 0; b < z.B; ++b) {
      const size_t room = z.C * z.M;
      if (past[b] < 0 || Length(b) > room) {
        return Errorf(call.api(),
                      "mojo.%s: past_seqlens of sequence %zu is %d; with %zu tokens more, it must be at "
                      "least 0 and fit into %zu blocks of %zu tokens",
                      call.def().name, b, static_cast<int>(past[b]), Added(b), z.C, z.M);
      }
      for (size_t i = 0; i * z.M < Length(b); ++i) {
        const int32_t block = table[b * z.C + i];
        if (block >= 0 && static_cast<size_t>(block) < z.N) continue;
        return Errorf(call.api(),
                      "mojo.%s: block %zu of sequence %zu in block_table is %d; its %zu tokens need blocks "
                      "from 0 to %lld",
                      call.def().name, i, b, static_cast<int>(block), Length(b), static_cast<long long>(z.N) - 1);
      }
    }
    return nullptr;
  }

  // Place is the row of the pool of a token of a sequence.
  size_t Place(size_t b, size_t j) const { return static_cast<size_t>(table[b * z.C + j / z.M]) * z.M + j % z.M; }

  // Slots writes the row of the pool that each token is written to, SIZE_MAX if none, and checks that no two are the
  // same. order becomes the tokens by their slots.
  OrtStatus* Slots(size_t* slots, size_t* order) const {
    size_t t = 0;
    for (size_t b = 0; b < z.B; ++b) {
      for (size_t i = 0; i < Added(b); ++i, ++t) {
        slots[t] = mapping == nullptr ? Place(b, static_cast<size_t>(past[b]) + i)
                   : mapping[t] < 0   ? SIZE_MAX
                                      : static_cast<size_t>(mapping[t]);
        order[t] = t;
        if (slots[t] == SIZE_MAX || slots[t] < z.N * z.M) continue;
        return Errorf(call.api(), "mojo.%s: slot_mapping of token %zu is %zu; the pool has %zu rows", call.def().name,
                      t, slots[t], z.N * z.M);
      }
    }
    std::sort(order, order + z.S, [&](size_t i, size_t j) { return slots[i] < slots[j]; });
    for (size_t i = 1; i < z.S; ++i) {
      const size_t slot = slots[order[i]];
      if (slot != slots[order[i - 1]] || slot == SIZE_MAX) continue;
      return Errorf(call.api(), "mojo.%s: two tokens are written to row %zu of the pool; give each its own, by %s",
                    call.def().name, slot, mapping == nullptr ? "block_table and past_seqlens" : "slot_mapping");
    }
    return nullptr;
  }

  // Rows writes the row of each key of a sequence. Keys before the first one that a token sees get the row of that one,
  // since tiles of keys begin there.
  void Rows(size_t b, size_t window, size_t* rows) const {
    const size_t length = Length(b), last = static_cast<size_t>(past[b]) + 1;
    const size_t seen = window > 0 && last > window ? std::min(length, last - window) : 0;
    for (size_t j = seen / z.M * z.M; j < length; j += z.M) {
      const size_t first = Place(b, j), end = std::min(length, j + z.M);
      for (size_t i = j; i < end; ++i) rows[i] = first + (i - j);
    }
    if (seen < length) std::fill_n(rows, seen, rows[seen]);
  }
};

// PagedRoom is the scratch memory of a run.
struct PagedRoom {
  size_t *slots = nullptr, *by_slot = nullptr, *rows = nullptr, *order = nullptr;
  PagedSequence* sequences = nullptr;
  HostScratch scratch;

  // Begin checks the sequences, takes the memory, and finds the rows that tokens are written to.
  OrtStatus* Begin(const Api& api, OrtKernelContext* context, const HostMemory& memory, const Step& step) {
    if (OrtStatus* s = step.CheckSequences()) return s;
    size_t keys = 0;
    for (size_t b = 0; b < step.z.B; ++b) keys += step.Length(b);
    const auto plan = [&](HostRoom* room) {
      slots = room->Take<size_t>(step.z.S);
      by_slot = room->Take<size_t>(step.z.S);
      rows = room->Take<size_t>(keys + kAttentionBlock);
      order = room->Take<size_t>(step.z.B);
      sequences = room->Take<PagedSequence>(step.z.B);
    };
    if (OrtStatus* s = scratch.Divide(api, context, memory, plan)) return s;
    return step.Slots(slots, by_slot);
  }
};

// Pool is a pool, and the new rows that are written to it.
struct Pool {
  const void *in, *added;
  void* out;
  size_t row;  // bytes

  // Copy copies the rows of the pool, unless in and out share memory.
  OrtStatus* Copy(const Api& api, OrtKernelContext* context, size_t rows) const {
    if (out == in || rows == 0 || row == 0) return nullptr;
    const auto run = [this](size_t begin, size_t end) {
      memcpy(static_cast<char*>(out) + begin * row, static_cast<const char*>(in) + begin * row, (end - begin) * row);
    };
    return RunInTasks(api, context, run, rows, row / sizeof(float));
  }

  void Write(const size_t* slots, size_t tokens) const {
    for (size_t t = 0; t < tokens && row > 0; ++t) {
      if (slots[t] == SIZE_MAX) continue;
      memcpy(static_cast<char*>(out) + slots[t] * row, static_cast<const char*>(added) + t * row, row);
    }
  }
};

// Attend computes y from pools that have all rows. Sequences with the same number of tokens are one run of Attention,
// whose keys and values are rows of the pools.
OrtStatus* Attend(OrtKernelContext* context, const HostMemory& memory, const PagedAttentionAttributes& attributes,
                  ElementType type, const Step& step, const PagedRoom& room, const Pool* pools,
                  const PoolScales* scales, const float* sink, void* y) {
  const PagedAttentionSizes& z = step.z;
  AttentionTensors t;
  t.heads = z.H;
  t.key_heads = z.Hk;
  t.width = z.D;
  t.value_width = z.Dv;
  t.q = step.call.data[kPagedAttentionQ];
  t.k = pools[0].out;
  t.v = pools[1].out;
  t.q_steps = {0, z.D, z.H * z.D};
  t.k_steps = {0, z.D, z.Hk * z.D};
  t.v_steps = {0, z.Dv, z.Hk * z.Dv};
  t.y_steps = {0, z.Dv, z.H * z.Dv};
  t.sink = sink;
  t.y = y;
  t.paged = room.sequences;
  t.scales = scales;
  AttentionAttributes a;
  a.scale = attributes.scale;
  a.causal = attributes.causal;
  a.window = attributes.window;
  a.softcap = attributes.softcap;
  a.cyclic = attributes.cyclic;
  size_t* const order = room.order;
  for (size_t b = 0; b < z.B; ++b) order[b] = b;
  std::sort(order, order + z.B, [&](size_t i, size_t j) { return step.Added(i) < step.Added(j); });
  for (size_t first = 0; first < z.B; first += t.batch) {
    t.queries = step.Added(order[first]);
    size_t* end = room.rows;
    for (t.batch = 0; first + t.batch < z.B && step.Added(order[first + t.batch]) == t.queries; ++t.batch) {
      const size_t b = order[first + t.batch];
      room.sequences[t.batch] = {static_cast<size_t>(step.cum[b]), step.Length(b), end};
      step.Rows(b, static_cast<size_t>(attributes.window), end);
      end += step.Length(b);
    }
    if (t.queries == 0) continue;
    std::fill_n(end, kAttentionBlock, *room.rows);
    AttentionTensors run = t;  // a run may fill in omitted tensors
    if (OrtStatus* s = RunAttention(step.call.api(), context, memory, a, {type, type}, &run)) return s;
  }
  return nullptr;
}

// PagedKernel is the state of one node.
struct PagedKernel : ScratchNode<PagedAttentionAttributes> {
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    PagedAttentionCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    const Step step(call, kPagedAttentionSlotMapping);
    PagedRoom room;
    if (OrtStatus* s = room.Begin(api, context, memory, step)) return s;

    const PagedAttentionSizes& z = step.z;
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
      if (OrtStatus* s = pool.Copy(api, context, z.N * z.M)) return s;
      pool.Write(room.slots, z.S);
    }
    return Attend(context, memory, attributes, type, step, room, pools, nullptr, call.Get<float>(kPagedAttentionSink),
                  y);
  }
};

// LeastScale is the least power of two from 2^-126 on times which most is at least a magnitude.
float LeastScale(float magnitude, float most) {
  if (!(magnitude <= FLT_MAX)) return NAN;
  int exponent;
  frexpf(magnitude, &exponent);  // magnitude < 2^exponent
  float scale = ldexpf(1, exponent - (most == 127 ? 7 : 9));
  if (magnitude > most * scale) scale *= 2;
  return magnitude == 0 ? 0x1p-126f : std::max(scale, 0x1p-126f);
}

// CodedPool is a pool of codes with its scales, and the new rows that are written to it.
struct CodedPool : Pool {
  const PoolFns& fns;
  float most;
  float* scale;
  size_t width, added_size;  // channels of a head, and bytes of an element of a new row

  // Write writes the new rows of a block, which are count of the tokens, for one head.
  void WriteHead(const Step& step, const size_t* slots, const size_t* tokens, size_t count, size_t head) const {
    const PagedAttentionSizes& z = step.z;
    const size_t block = slots[tokens[0]] / z.M;
    const auto row_of = [&](size_t t) {
      return static_cast<const char*>(added) + (t * z.Hk + head) * width * added_size;
    };
    uint8_t* const codes = static_cast<uint8_t*>(out) + (block * z.M * z.Hk + head) * width;
    float greatest = 0;
    for (size_t i = 0; i < count; ++i) {
      const float of = fns.greatest(row_of(tokens[i]), width);
      greatest = of <= greatest ? greatest : of;  // NaN stays
      if (!(greatest <= FLT_MAX)) break;
    }
    const bool over = slots[tokens[0]] % z.M == 0;
    const float old = over ? 0x1p-126f : scale[block * z.Hk + head], least = LeastScale(greatest, most);
    const float now = least != least || least > old ? least : old;
    for (size_t i = 0; i < z.M && over; ++i) memset(codes + i * row, 0, width);
    for (size_t i = 0; i < z.M && !over && now > old; ++i) fns.recode(codes + i * row, old / now, width);
    for (size_t i = 0; i < count; ++i) fns.encode(row_of(tokens[i]), now, codes + slots[tokens[i]] % z.M * row, width);
    scale[block * z.Hk + head] = now;
  }
};

// QPagedKernel is the state of one node.
struct QPagedKernel : ScratchNode<QPagedAttentionAttributes> {
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    QPagedAttentionCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    const Step step(call, kQPagedAttentionSlotMapping);
    PagedRoom room;
    if (OrtStatus* s = room.Begin(api, context, memory, step)) return s;

    const PagedAttentionSizes& z = step.z;
    void* y = nullptr;
    if (OrtStatus* s = call.Make(0, &y)) return s;
    const ElementType type = Input(kQPagedAttentionQ);
    const bool float8 = types->inputs[kQPagedAttentionKeyCache] == kF8;
    const PoolFns& fns = *TheKernels()->pool(type, float8);
    const auto pool = [&](size_t cache, size_t added, size_t width) {
      return CodedPool{{call.data[cache], call.data[added], nullptr, z.Hk * width},
                       fns,
                       float8 ? 448.0f : 127.0f,
                       nullptr,
                       width,
                       SizeOf(type)};
    };
    CodedPool pools[] = {pool(kQPagedAttentionKeyCache, kQPagedAttentionK, z.D),
                         pool(kQPagedAttentionValueCache, kQPagedAttentionV, z.Dv)};
    for (size_t i = 0; i < 2; ++i) {
      Pool scales{call.data[kQPagedAttentionKeyScale + i], nullptr, nullptr, z.Hk * sizeof(float)};
      if (OrtStatus* s = call.Make(1 + i, &pools[i].out)) return s;
      if (OrtStatus* s = call.Make(3 + i, &scales.out)) return s;
      if (OrtStatus* s = pools[i].Copy(api, context, z.N * z.M)) return s;
      if (OrtStatus* s = scales.Copy(api, context, z.N)) return s;
      pools[i].scale = static_cast<float*>(scales.out);
    }
    // The first of the tokens, by their slots, that are written to each block.
    size_t* const firsts = room.rows;  // not used yet, and as many as keys
    size_t blocks = 0, written = 0;
    for (; written < z.S && room.slots[room.by_slot[written]] != SIZE_MAX; ++written) {
      const auto block = [&](size_t i) { return room.slots[room.by_slot[i]] / z.M; };
      if (written == 0 || block(written) != block(written - 1)) firsts[blocks++] = written;
    }
    const auto write = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const size_t at = i / z.Hk, first = firsts[at], last = at + 1 < blocks ? firsts[at + 1] : written;
        for (const CodedPool& of : pools) {
          of.WriteHead(step, room.slots, room.by_slot + first, last - first, i % z.Hk);
        }
      }
    };
    if (blocks * z.Hk > 0) {
      const size_t width = (written / blocks + 1) * (z.D + z.Dv);
      if (OrtStatus* s = RunInTasks(api, context, write, blocks * z.Hk, width)) return s;
    }
    const PoolScales scales{pools[0].scale, pools[1].scale, z.M, float8};
    const Pool both[] = {pools[0], pools[1]};
    return Attend(context, memory, attributes.attention, type, step, room, both, &scales,
                  call.Get<float>(kQPagedAttentionSink), y);
  }
};

}  // namespace

const Backend kCPUPagedAttention = MakeBackend<PagedKernel>(nullptr);
const Backend kCPUQPagedAttention = MakeBackend<QPagedKernel>(nullptr);

}  // namespace mojo
