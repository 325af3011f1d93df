// TopKRouter, in float32 as the op is defined: by aclnnMoeGatingTopKSoftmax if that computes all of it, else by calls
// for each step of the definition.
#include "ascend/backends.h"

namespace mojo {
namespace {

// Above this, Softplus returns its argument: the difference is below float32's resolution.
constexpr float kSoftplusThreshold = 20;

// Router is a running node: its attributes, and the sizes of its tensors.
struct Router {
  const TopKRouterAttributes& a;
  int64_t rows, experts;
  Run* run;

  View Floats(const Dims& dims) { return run->Memory(ACL_FLOAT, dims); }
  View Score(const View& logits);
  View Choice(const View& scores, const View& bias);
  void Exclude(const View& choice);
  void Topk(const View& from, int64_t k, const View& values, const View& ids);
  View Sum(const View& from, const Dims& dims, bool keep);
  void Scale(const View& weights, const View& out);
  bool scaled() const { return a.renormalize || a.scale != 1; }
};

// Score returns the scores of any number of logits.
View Router::Score(const View& logits) {
  const Cann& cann = TheCann();
  const View scores = Floats(logits.dims);
  if (a.score == Score::kSoftmax) {
    run->Do(cann.Softmax, run->Tensor(logits), -1, run->Tensor(scores));
  } else if (a.score == Score::kSigmoid) {
    run->Do(cann.Sigmoid, run->Tensor(logits), run->Tensor(scores));
  } else {
    const View soft = Floats(logits.dims);
    run->Do(cann.Softplus, run->Tensor(logits), run->Number(1), run->Number(kSoftplusThreshold), run->Tensor(soft));
    run->Do(cann.Sqrt, run->Tensor(soft), run->Tensor(scores));
  }
  return scores;
}

// Choice returns the numbers that rank the experts, in scratch memory if they differ from scores.
View Router::Choice(const View& scores, const View& bias) {
  if (bias.data == nullptr && a.groups == 1) return scores;
  const View choice = Floats(scores.dims);
  if (bias.data == nullptr) {
    run->Copy(choice, scores);
  } else {
    run->Do(TheCann().Add, run->Tensor(scores), run->Tensor(bias), run->Number(1), run->Tensor(choice));
  }
  if (a.groups > 1) Exclude(choice);
  return choice;
}

void Router::Topk(const View& from, int64_t k, const View& values, const View& ids) {
  run->Do(TheCann().Topk, run->Tensor(from), k, -1, true, true, run->Tensor(values), run->Tensor(ids));
}

View Router::Sum(const View& from, const Dims& dims, bool keep) {
  const View sum = Floats(dims);
  run->Do(TheCann().ReduceSum, run->Tensor(from), run->Ints(-1), keep, ACL_FLOAT, run->Tensor(sum));
  return sum;
}

// Exclude writes excluded_score over all but the best groups.
void Router::Exclude(const View& choice) {
  const Cann& cann = TheCann();
  const int64_t best = a.top2_sum ? 2 : 1;
  const View grouped(choice.data, ACL_FLOAT, {rows, a.groups, experts / a.groups});
  const View greatest = Floats({rows, a.groups, best});
  Topk(grouped, best, greatest, run->Memory(ACL_INT64, greatest.dims));
  const View of_group =
      a.top2_sum ? Sum(greatest, {rows, a.groups}, false) : View(greatest.data, ACL_FLOAT, {rows, a.groups});
  const View kept = run->Memory(ACL_INT64, {rows, a.group_top_k});
  Topk(of_group, a.group_top_k, Floats(kept.dims), kept);
  const View out = run->Memory(ACL_BOOL, {rows, a.groups});
  run->Do(cann.InplaceOne, run->Tensor(out));
  run->Do(cann.InplaceScatterValue, run->Tensor(out), -1, run->Tensor(kept), run->False(), 0);
  run->Do(cann.InplaceMaskedFillScalar, run->Tensor(grouped),
          run->Tensor(View(out.data, ACL_BOOL, {rows, a.groups, 1})), run->Number(a.excluded_score));
}

// Scale divides weights by their sum and multiplies them, if the node asks for it.
void Router::Scale(const View& weights, const View& out) {
  const Cann& cann = TheCann();
  View w = weights;
  if (a.renormalize) {
    View sum = Sum(w, {rows, 1}, true);
    if (a.epsilon != 0) {
      const View more = Floats(sum.dims);
      run->Do(cann.Adds, run->Tensor(sum), run->Number(a.epsilon), run->Number(1), run->Tensor(more));
      sum = more;
    }
    const View divided = a.scale == 1 ? out : Floats(w.dims);
    run->Do(cann.Div, run->Tensor(w), run->Tensor(sum), run->Tensor(divided));
    w = divided;
  }
  if (a.scale != 1) run->Do(cann.Muls, run->Tensor(w), run->Number(a.scale), run->Tensor(out));
}

// Gating makes the whole choice in one call, which returns 32-bit expert ids.
void Gating(Router* router, const View& logits, const View& weights, const View& ids) {
  const Cann& cann = TheCann();
  Run* run = router->run;
  const View chosen = run->Memory(ACL_INT32, ids.dims), rows = run->Memory(ACL_INT32, ids.dims);
  const View w = router->scaled() ? router->Floats(weights.dims) : weights;
  run->Do(cann.MoeGatingTopKSoftmax, run->Tensor(logits), nullptr, router->a.top_k, run->Tensor(w), run->Tensor(chosen),
          run->Tensor(rows));
  run->CastTo(ids, chosen);
  router->Scale(w, weights);
}

// Steps follows the op's definition. The order in which aclnnTopk takes equal numbers is not documented.
void Steps(Router* router, const View& logits, const View& bias, const View& weights, const View& ids) {
  Run* run = router->run;
  const bool first = router->a.top_k_first;
  const View scores = first ? logits : router->Score(logits);
  const View choice = router->Choice(scores, bias);
  const View greatest = router->Floats(weights.dims);
  router->Topk(choice, router->a.top_k, greatest, ids);
  View w = greatest;
  if (choice.data != scores.data) {
    w = router->Floats(weights.dims);
    run->Do(TheCann().Gather, run->Tensor(scores), -1, run->Tensor(ids), run->Tensor(w));
  }
  if (first) w = router->Score(w);
  if (router->scaled()) {
    router->Scale(w, weights);
  } else {
    run->Copy(weights, w);
  }
}

struct RouterKernel : Node<TopKRouterAttributes> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = Node::Init(init)) return s;
    const TopKRouterAttributes& a = attributes;
    Cann& c = TheCann();
    OrtStatus* status = Find(init, c.Cast, c.InplaceCopy, c.Add, c.Topk, c.Gather);
    const auto find = [&](bool needed, auto&... calls) {
      if (needed && status == nullptr) status = Find(init, calls...);
    };
    find(a.score == Score::kSoftmax, c.Softmax, c.MoeGatingTopKSoftmax);
    find(a.score == Score::kSigmoid, c.Sigmoid);
    find(a.score == Score::kSqrtsoftplus, c.Softplus, c.Sqrt);
    find(a.groups > 1, c.ReduceSum, c.InplaceOne, c.InplaceScatterValue, c.InplaceMaskedFillScalar);
    find(a.renormalize, c.ReduceSum, c.Adds, c.Div);
    find(a.scale != 1, c.Muls);
    return status;
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    const TopKRouterAttributes& a = attributes;
    TopKRouterCall call(api, context, a);
    float* made;
    int64_t* numbers;
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = call.Make(0, &made)) return s;
    if (OrtStatus* s = call.Make(1, &numbers)) return s;
    if (call.sizes.A == 0) return nullptr;
    Run run(context, kTopKRouter, memory);
    Router router{a, static_cast<int64_t>(call.sizes.A), static_cast<int64_t>(call.sizes.E), &run};
    const Dims chosen{router.rows, a.top_k};
    const View weights(made, ACL_FLOAT, chosen), ids(numbers, ACL_INT64, chosen);
    const View logits =
        run.Cast(View(call.data[kTopKRouterLogits], input(0), {router.rows, router.experts}), ACL_FLOAT);
    if (GatesTopK(a, call.data[kTopKRouterCorrectionBias] != nullptr)) {
      Gating(&router, logits, weights, ids);
    } else {
      View bias;
      if (call.data[kTopKRouterCorrectionBias] != nullptr)
        bias = run.Cast(View(call.data[kTopKRouterCorrectionBias], input(1), {router.experts}), ACL_FLOAT);
      Steps(&router, logits, bias, weights, ids);
    }
    return run.Finish();
  }
};

}  // namespace

const Backend kCANNTopKRouter = MakeBackend<RouterKernel>(kCANNProvider);

}  // namespace mojo
