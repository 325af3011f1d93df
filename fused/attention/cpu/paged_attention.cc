// PagedAttention on the CPU. Sequences with the same number of tokens are one run of Attention, whose keys and values
// are rows of the pools.
#include <string.h>

#include <algorithm>

#include "attention/cpu/attention_run.h"
#include "cpu/backends.h"
#include "cpu/scratch.h"

namespace mojo {
namespace {

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

// PagedKernel is the state of one node.
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

const Backend kCPUPagedAttention = MakeBackend<PagedKernel>(nullptr);

}  // namespace mojo
