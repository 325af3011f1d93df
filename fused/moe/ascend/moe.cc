// MoE: tokens in the order of the experts (aclnnMoeInitRoutingV2), a product for each expert (aclnnGroupedMatmulV4),
// the activation, another product, and the sum of each token's experts (aclnnMoeFinalizeRoutingV2).
//
// This does not check the ids as the CPU backend does: they are on the device, and waiting for them would stop the
// stream. CANN requires valid ids. kNoExpert becomes the number of one more expert, whose rows come last and belong to
// no group, so no product computes them. They are ones with a weight of 0.
#include "moe/common/moe.h"
#include "ascend/backends.h"

namespace mojo {
namespace {

// MoERun is a running node. Row numbers, ids and counts have 32 bits if CANN's routing does.
struct MoERun {
  const MoEAttributes& a;
  const MoEShape& shape;
  aclDataType type;
  Run* run;

  int64_t tokens() const { return static_cast<int64_t>(shape.tokens); }
  int64_t k() const { return static_cast<int64_t>(shape.k); }
  int64_t rows() const { return tokens() * k(); }
  int64_t experts() const { return static_cast<int64_t>(shape.experts); }
  int64_t hidden() const { return static_cast<int64_t>(shape.hidden); }
  int64_t inner() const { return static_cast<int64_t>(shape.inner); }
  int64_t packed() const { return static_cast<int64_t>(shape.packed); }

  View Weights(const void* matrices, int64_t in, int64_t out, bool in_out) const;
  void Product(const View& x, const View& weights, const void* bias, const View& counts, const View& y);
  View Activated(const View& h);
  void Combine(const View& expanded, const View& row_ids, const View& weights, void* y);
};

// Weights returns the experts' matrices, [experts, in, out]: as stored, or transposed by their strides.
View MoERun::Weights(const void* matrices, int64_t in, int64_t out, bool in_out) const {
  if (in_out) return View(matrices, type, {experts(), in, out});
  return View(matrices, type, {experts(), in, out}, {in * out, 1, in}, 0, {experts(), out, in});
}

// Product multiplies the rows of x by the matrices of their experts; counts has the number of rows of each expert.
// Later rows of y stay as they are.
void MoERun::Product(const View& x, const View& weights, const void* bias, const View& counts, const View& y) {
  const int64_t width = weights.dims.at[2];
  const aclTensorList* biases = nullptr;
  if (bias != nullptr) {
    // The bias of bfloat16 matrices is float32.
    biases = run->List(run->Cast(View(bias, type, {experts(), width}), type == ACL_BF16 ? ACL_FLOAT : type));
  }
  constexpr int64_t kOneOutput = 3, kByRows = 0, kCounts = 1, kNoActivation = 0;
  run->Do(TheCann().GroupedMatmulV4, run->List(x), run->List(weights), biases, nullptr, nullptr, nullptr, nullptr,
          nullptr, run->Tensor(counts), nullptr, nullptr, nullptr, kOneOutput, kByRows, kCounts, kNoActivation,
          run->OutList(y), nullptr, nullptr);
}

bool IsSwiGlu(const MoEAttributes& a) {
  const GLUAttributes& g = a.gate;
  return a.packing == Packing::kHalves && g.activation == Activation::kSilu && g.alpha == 1 && g.limit == 0 &&
         g.up_offset == 0;
}

// Activated applies the activation to the first product. Gate and up are parts of its rows.
View MoERun::Activated(const View& h) {
  const View y = run->Memory(type, {rows(), inner()});
  if (IsSwiGlu(a)) {
    run->Do(TheCann().SwiGlu, run->Tensor(h), -1, run->Tensor(y));
    return y;
  }
  const Dims dims{rows(), inner()};
  if (a.packing == Packing::kNone) {
    Gate(run, a.gate, h, View(), y);
  } else if (a.packing == Packing::kInterleaved) {
    Gate(run, a.gate, View(h.data, type, dims, {packed(), 2}, 0, h.dims),
         View(h.data, type, dims, {packed(), 2}, 1, h.dims), y);
  } else {
    Gate(run, a.gate, View(h.data, type, dims, {packed(), 1}, 0, h.dims),
         View(h.data, type, dims, {packed(), 1}, inner(), h.dims), y);
  }
  return y;
}

// Combine adds up the rows of each token, times its weights.
void MoERun::Combine(const View& expanded, const View& row_ids, const View& weights, void* y) {
  const aclDataType wide = CombineType(type, weights.type);
  const View out(y, type, {tokens(), hidden()});
  const View sum = wide == type ? out : run->Memory(wide, out.dims);
  constexpr int64_t kByToken = 2;
  run->Do(TheCann().MoeFinalizeRoutingV2, run->Tensor(run->Cast(expanded, wide)), run->Tensor(row_ids), nullptr,
          nullptr, nullptr, run->Tensor(weights), nullptr, kByToken, run->Tensor(sum));
  if (wide != type) run->CastTo(out, sum);
}

struct MoEKernel : Node<MoEAttributes> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = Node::Init(init)) return s;
    if (OrtStatus* s = CheckMoETypes(init)) return s;
    Cann& c = TheCann();
    if (OrtStatus* s = Find(init, c.MoeInitRoutingV2, c.GroupedMatmulV4, c.MoeFinalizeRoutingV2, c.Cast, c.InplaceCopy,
                            c.InplaceOne, c.EqScalar, c.InplaceMaskedFillScalar)) {
      return s;
    }
    return IsSwiGlu(attributes) ? Find(init, c.SwiGlu) : FindGate(init, attributes.gate);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    const MoEAttributes& a = attributes;
    void* y;
    MoECall call(api, context, a);
    if (OrtStatus* s = call.Read()) return s;
    const MoEShape shape = ShapeOf(call.sizes);
    if (OrtStatus* s = call.Make(0, &y)) return s;
    if (shape.tokens == 0 || shape.hidden == 0) return nullptr;
    if (OrtStatus* s = CheckMoEShape(api, shape)) return s;
    Run run(context, kMoE, memory);
    MoERun m{a, shape, input(kMoEX), &run};
    const Dims chosen{m.tokens(), m.k()};
    const View ids = run.Memory(ACL_INT32, chosen), none = run.Memory(ACL_BOOL, chosen);
    run.CastTo(ids, View(call.data[kMoEIds], ACL_INT64, chosen));
    run.Do(TheCann().EqScalar, run.Tensor(ids), run.Number(kNoExpert), run.Tensor(none));
    const auto fill = [&](const View& v, int64_t with) {
      run.Do(TheCann().InplaceMaskedFillScalar, run.Tensor(v), run.Tensor(none), run.Number(static_cast<float>(with)));
    };
    fill(ids, m.experts());
    const View weights = run.Memory(input(kMoEWeights), chosen);
    run.Copy(weights, View(call.data[kMoEWeights], weights.type, chosen));
    fill(weights, 0);
    const View expanded = run.Memory(m.type, {m.rows(), m.hidden()});
    const View row_ids = run.Memory(ACL_INT32, {m.rows()}), counts = run.Memory(ACL_INT32, {m.experts() + 1});
    constexpr int64_t kAllRows = 0, kNoCapacity = 0, kDropNone = 0, kCounts = 2;
    run.Do(TheCann().MoeInitRoutingV2, run.Tensor(View(call.data[kMoEX], m.type, {m.tokens(), m.hidden()})),
           run.Tensor(ids), kAllRows, kNoCapacity, m.experts() + 1, kDropNone, kCounts, false, run.Tensor(expanded),
           run.Tensor(row_ids), run.Tensor(counts), nullptr);
    const View groups = run.Cast(View(counts.data, ACL_INT32, {m.experts()}), ACL_INT64);
    const View h = run.Memory(m.type, {m.rows(), m.packed()}), out = run.Memory(m.type, expanded.dims);
    m.Product(expanded, m.Weights(call.data[kMoEGateUp], m.hidden(), m.packed(), a.gate_up_in_out),
              call.data[kMoEGateUpBias], groups, h);
    run.Do(TheCann().InplaceOne, run.Tensor(out));
    m.Product(m.Activated(h), m.Weights(call.data[kMoEDown], m.inner(), m.hidden(), a.down_in_out),
              call.data[kMoEDownBias], groups, out);
    m.Combine(out, row_ids, weights, y);
    return run.Finish();
  }
};

}  // namespace

const Backend kCANNMoE = MakeBackend<MoEKernel>(kCANNProvider);

}  // namespace mojo
