// Attention by aclnnFlashAttentionScore, which reads [B, N, S, D] with any strides.
//
// The mask is a boolean tensor, true for hidden keys. Calls on the device build it from triangles for positions and
// from key_valid compared with 0. The result for a query that sees no key is not documented, so those rows are written
// again: with 0, or with the mean of all values. Copies join the cache with new keys and values.
#include "attention/common/attention.h"

#include <stdint.h>

#include "ascend/backends.h"

namespace mojo {
namespace {

int64_t Int(size_t n) { return static_cast<int64_t>(n); }

// Sizes are the sizes of the tensors in CANN's layout.
struct Sizes {
  int64_t batch, heads, key_heads, queries, keys, width;

  explicit Sizes(const AttentionTensors& t)
      : batch(Int(t.batch)),
        heads(Int(t.heads)),
        key_heads(Int(t.key_heads)),
        queries(Int(t.queries)),
        keys(Int(t.past + t.added)),
        width(Int(t.width)) {}
};

// Heads is a tensor of heads viewed as [batch, heads, rows, width], in any memory order.
View Heads(const void* data, aclDataType type, const HeadSteps& steps, int64_t batch, int64_t heads, int64_t rows,
           int64_t width) {
  return View(data, type, {batch, heads, rows, width}, {Int(steps.batch), Int(steps.head), Int(steps.row), 1}, 0,
              {batch * heads * rows * width});
}

// Rows is some rows of each head of a tensor without gaps.
View Rows(const View& whole, int64_t first, int64_t count) {
  View part = whole;
  part.dims.at[2] = count;
  part.offset = first * whole.strides.at[2];
  return part;
}

// Joined returns keys or values appended to the cache, and writes present if the node has it.
View Joined(Run* run, const Sizes& n, int64_t past, const void* cache, const View& added, void* present) {
  if (cache == nullptr && present == nullptr) return added;
  const Dims dims{n.batch, n.key_heads, n.keys, n.width};
  const View whole = present != nullptr ? View(present, added.type, dims) : run->Memory(added.type, dims);
  if (past > 0) run->Copy(Rows(whole, 0, past), View(cache, added.type, {n.batch, n.key_heads, past, n.width}));
  run->Copy(Rows(whole, past, n.keys - past), added);
  return whole;
}

// ByPosition is true if a key's position hides it from a query: [queries, keys]. It has no data if no key is hidden.
View ByPosition(Run* run, const Sizes& n, const AttentionAttributes& attributes) {
  const Cann& cann = TheCann();
  const int64_t first = n.keys - n.queries, window = Int(attributes.window);
  const bool later = attributes.causal && n.queries > 1, earlier = window > 0 && n.keys > window;
  if (!later && !earlier) return View();
  const Dims dims{n.queries, n.keys};
  const View all = run->Memory(ACL_BOOL, dims);
  run->Do(cann.InplaceOne, run->Tensor(all));
  View hidden;
  if (later) {
    hidden = run->Memory(ACL_BOOL, dims);
    run->Do(cann.Triu, run->Tensor(all), first + 1, run->Tensor(hidden));
  }
  if (!earlier) return hidden;
  const View old = run->Memory(ACL_BOOL, dims);
  run->Do(cann.Tril, run->Tensor(all), first - window, run->Tensor(old));
  if (!later) return old;
  const View both = run->Memory(ACL_BOOL, dims);
  run->Do(cann.LogicalOr, run->Tensor(hidden), run->Tensor(old), run->Tensor(both));
  return both;
}

// Hidden is true if a query does not see a key: [batch, 1, queries, keys], or the result of ByPosition if no key is
// padding.
View Hidden(Run* run, const Sizes& n, const AttentionAttributes& attributes, const AttentionTensors& t) {
  const Cann& cann = TheCann();
  const View position = ByPosition(run, n, attributes);
  if (t.key_valid == nullptr) return position;
  const View padding = run->Memory(ACL_BOOL, {n.batch, 1, 1, n.keys});
  const int64_t step = Int(t.valid_step);
  run->Do(cann.EqScalar,
          run->Tensor(View(t.key_valid, ACL_INT64, padding.dims, {step, step, step, 1}, 0, {n.batch * step})),
          run->Number(0), run->Tensor(padding));
  const View hidden = run->Memory(ACL_BOOL, {n.batch, 1, n.queries, n.keys});
  if (position.data == nullptr) {
    run->Copy(hidden, padding);
  } else {
    run->Do(cann.LogicalOr, run->Tensor(padding), run->Tensor(View(position.data, ACL_BOOL, {1, 1, n.queries, n.keys})),
            run->Tensor(hidden));
  }
  return hidden;
}

// FillEmpty rewrites the rows of y that see no key.
void FillEmpty(Run* run, const Sizes& n, bool mean, const View& hidden, const View& v, const View& y) {
  const Cann& cann = TheCann();
  const View empty = run->Memory(ACL_BOOL, {n.batch, 1, n.queries, 1});
  run->Do(cann.All, run->Tensor(hidden), run->Ints(3), true, run->Tensor(empty));
  run->Do(cann.InplaceMaskedFillScalar, run->Tensor(y), run->Tensor(empty), run->Number(0));
  if (!mean) return;
  const Dims each{n.batch, n.key_heads, 1, n.width};
  const View sum = run->Memory(ACL_FLOAT, each), average = run->Memory(ACL_FLOAT, each);
  run->Do(cann.ReduceSum, run->Tensor(v), run->Ints(2), true, ACL_FLOAT, run->Tensor(sum));
  run->Do(cann.Muls, run->Tensor(sum), run->Number(1 / static_cast<float>(n.keys)), run->Tensor(average));
  // A separate dimension holds the query heads that share a key head.
  const int64_t shared = n.heads / n.key_heads;
  const Dims rows{n.batch, n.key_heads, shared, n.queries, n.width};
  const View where = run->Cast(empty, v.type), values = run->Cast(average, v.type);
  const View instead = run->Memory(v.type, {n.batch, n.key_heads, 1, n.queries, n.width});
  run->Do(cann.Mul, run->Tensor(View(where.data, v.type, {n.batch, 1, 1, n.queries, 1})),
          run->Tensor(View(values.data, v.type, {n.batch, n.key_heads, 1, 1, n.width})), run->Tensor(instead));
  const Dims steps{y.strides.at[0], shared * y.strides.at[1], y.strides.at[1], y.strides.at[2], 1};
  const View grouped(y.data, y.type, rows, steps, 0, y.storage), filled = run->Memory(v.type, rows);
  run->Do(cann.Add, run->Tensor(grouped), run->Tensor(instead), run->Number(1), run->Tensor(filled));
  run->Copy(grouped, filled);
}

struct AttentionKernel : Node<AttentionAttributes> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = Node::Init(init)) return s;
    if (OrtStatus* s = CheckAttention(init, attributes)) return s;
    Cann& cann = TheCann();
    return Find(init, cann.FlashAttentionScore, cann.InplaceOne, cann.Triu, cann.Tril, cann.EqScalar, cann.LogicalOr,
                cann.All, cann.InplaceCopy, cann.InplaceMaskedFillScalar, cann.ReduceSum, cann.Muls, cann.Mul, cann.Add,
                cann.Cast);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    AttentionTensors t;
    t.on_device = true;
    AttentionCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = ReadAttention(&call, &t)) return s;
    if (OrtStatus* s = CheckAttentionTensors(api, t)) return s;
    const Sizes n(t);
    const int64_t past = Int(t.past), added = Int(t.added);
    if (n.batch == 0 || n.heads == 0 || n.queries == 0 || n.width == 0) return nullptr;
    const aclDataType type = input(0);
    Run run(context, kAttention, memory);
    const View q = Heads(t.q, type, t.q_steps, n.batch, n.heads, n.queries, n.width);
    const View y = Heads(t.y, type, t.y_steps, n.batch, n.heads, n.queries, n.width);
    const View k = Joined(&run, n, past, t.past_key, Heads(t.k, type, t.k_steps, n.batch, n.key_heads, added, n.width),
                          t.present_key);
    const View v = Joined(&run, n, past, t.past_value,
                          Heads(t.v, type, t.v_steps, n.batch, n.key_heads, added, n.width), t.present_value);
    const View hidden = Hidden(&run, n, attributes, t);
    const View most = run.Memory(ACL_FLOAT, {n.batch, n.heads, n.queries, 8}), sum = run.Memory(ACL_FLOAT, most.dims);
    char layout[] = "BNSD";
    run.Do(TheCann().FlashAttentionScore, run.Tensor(q), run.Tensor(k), run.Tensor(v), nullptr, nullptr, nullptr,
           hidden.data == nullptr ? nullptr : run.Tensor(hidden), nullptr, static_cast<double>(attributes.scale), 1.0,
           INT32_MAX, INT32_MAX, n.heads, layout, 0, 0, run.Tensor(most), run.Tensor(sum), nullptr, run.Tensor(y));
    if (t.key_valid != nullptr) FillEmpty(&run, n, attributes.empty_mean, hidden, v, y);
    return run.Finish();
  }
};

}  // namespace

const Backend kCANNAttention = MakeBackend<AttentionKernel>(kCANNProvider);

}  // namespace mojo
