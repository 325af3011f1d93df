package router_test

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Routers as exporters and people write them.
func TestRouters(t *testing.T) {
	tests := map[string]struct {
		build func(b *routerGraph)
		want  string
	}{
		"softmax": {func(b *routerGraph) { b.out(b.topK(b.softmax(b.logits), 2)) },
			"score_first softmax top 2, times 1"},
		"renormalized": {func(b *routerGraph) {
			w, ids := b.topK(b.softmax(b.logits), 3)
			b.out(b.divided(w), ids)
		}, "score_first softmax top 3, over sum + 0, times 1"},
		"by the reciprocal of a sum without its axis, then scaled": {func(b *routerGraph) {
			w, ids := b.topK(b.softmax(b.logits), 2)
			sum := b.Op("Add", b.Op("ReduceSum", w, []int64{1}, onnx.IntAttr("keepdims", 0)), 0.5)
			b.out(b.Op("Div", b.Op("Mul", b.Op("Reciprocal", b.Op("Unsqueeze", sum, []int64{1})), w), 0.5), ids)
		}, "score_first softmax top 2, over sum + 0.5, times 2"},
		"scaled, then by the L1 norm": {func(b *routerGraph) {
			w, ids := b.topK(b.softmax(b.logits), 2)
			w = b.Op("Mul", 2.0, w)
			norm := b.Op("Expand", b.Op("Add", b.Op("ReduceL1", w, []int64{-1}), 0.5), b.Op("Shape", w))
			b.out(b.Op("Div", w, norm), ids)
		}, "score_first softmax top 2, over sum + 0.25, times 1"},
		"a sum bounded from below, where it is greater anyway": {func(b *routerGraph) {
			w, ids := b.topK(b.softmax(b.logits), 2)
			b.out(b.Op("Div", w, b.Op("Max", b.sum(w), 1e-12)), ids)
		}, "score_first softmax top 2, over sum + 0, times 1"},
		"softmax written out": {func(b *routerGraph) {
			e := b.Op("Exp", b.Op("Sub", b.logits, b.Op("ReduceMax", b.logits, []int64{-1})))
			b.out(b.topK(b.divided(e), 2))
		}, "score_first softmax top 2, times 1"},
		"sigmoid written out": {func(b *routerGraph) {
			b.out(b.topK(b.Op("Reciprocal", b.Op("Add", 1.0, b.Op("Exp", b.Op("Neg", b.logits)))), 2))
		}, "score_first sigmoid top 2, times 1"},
		"root of the softplus": {func(b *routerGraph) {
			s := b.Op("Sqrt", b.Op("Softplus", b.logits))
			_, ids := b.topK(b.Op("Add", s, b.weight(experts)), 2)
			b.out(b.divided(b.Op("GatherElements", s, ids, onnx.IntAttr("axis", 1))), ids)
		}, "score_first sqrtsoftplus top 2, bias, over sum + 0, times 1"},
		"root of the softplus, of small logits": {func(b *routerGraph) {
			plus := b.Op("Where", b.Op("Greater", b.logits, 20.0), b.logits, b.Op("Softplus", b.logits))
			b.out(b.topK(b.Op("Pow", plus, 0.5), 2))
		}, "score_first sqrtsoftplus top 2, times 1"},
		"logarithms of the softmax": {func(b *routerGraph) {
			v, ids := b.topK(b.Op("LogSoftmax", b.logits, onnx.IntAttr("axis", 1)), 2)
			b.out(b.divided(b.Op("Exp", v)), ids)
		}, "top_k_first softmax top 2, times 1"},
		"the best logits": {func(b *routerGraph) {
			v, ids := b.topK(b.Op("Add", b.logits, b.weight(experts)), 2)
			b.out(b.softmax(v), ids)
		}, "top_k_first softmax top 2, times 1"},
		"the best logits at another temperature": {func(b *routerGraph) {
			v, ids := b.topK(b.logits, 2)
			b.out(b.softmax(b.Op("Div", v, 0.5)), ids)
		}, "top_k_first softmax top 2, times 1"},
		"sigmoid of the best logit": {func(b *routerGraph) {
			v, ids := b.topK(b.logits, 1)
			b.out(b.Op("Sigmoid", v), ids)
		}, "top_k_first sigmoid top 1, times 1"},
		"the best logits, sigmoid of all gathered": {func(b *routerGraph) {
			_, ids := b.topK(b.logits, 2)
			b.out(b.divided(b.gather(b.Op("Sigmoid", b.logits), ids)), ids)
		}, "top_k_first sigmoid top 2, over sum + 0, times 1"},
		"the best logits, softmax of all gathered and divided": {func(b *routerGraph) {
			_, ids := b.topK(b.logits, 2)
			b.out(b.divided(b.gather(b.softmax(b.logits), ids)), ids)
		}, "top_k_first softmax top 2, times 1"},
		"a bias for the choice": {func(b *routerGraph) {
			s := b.Op("Sigmoid", b.logits)
			_, ids := b.topK(b.Op("Add", b.weight(experts), s), 2)
			b.out(b.Op("Mul", b.divided(b.gather(s, ids)), 2.5), ids)
		}, "score_first sigmoid top 2, bias, over sum + 0, times 2.5"},
		"a bias of two axes, gathered by GatherND": {func(b *routerGraph) {
			s := b.Op("Sigmoid", b.logits)
			_, ids := b.topK(b.Op("Add", s, b.weight(1, experts)), 2)
			b.out(b.Op("GatherND", s, b.Op("Unsqueeze", ids, []int64{-1}), onnx.IntAttr("batch_dims", 1)), ids)
		}, "score_first sigmoid top 2, bias, times 1"},
		"groups by their best": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			kept := b.bools(b.keptGroups(b.maxGroups(s, 4), 4, 2))
			w, ids := b.topK(b.Op("Where", kept, s, 0.0), 2)
			b.out(b.Op("Mul", w, 16.0), ids)
		}, "score_first softmax top 2, 2 of 4 groups by max else 0, times 16"},
		"groups by their two best, and a bias": {func(b *routerGraph) {
			s := b.Op("Sigmoid", b.logits)
			c := b.Op("Add", s, b.weight(experts))
			kept := b.Op("Not", b.bools(b.keptGroups(b.top2Groups(c, 2), 2, 1)))
			_, ids := b.topK(b.Op("Where", kept, math.Inf(-1), c), 3)
			b.out(b.divided(b.gather(s, ids)), ids)
		}, "score_first sigmoid top 3, 1 of 2 groups by top2_sum else -Inf, bias, over sum + 0, times 1"},
		"a mask that is multiplied, from one_hot": {func(b *routerGraph) {
			s := b.Op("Sigmoid", b.logits)
			_, group := b.topK(b.maxGroups(s, 4), 2)
			depth := b.Model.Graph.AddInitializer(onnx.NewInt64s("depth", []int64{4}))
			hot := b.Op("OneHot", group, depth,
				b.Model.Graph.AddInitializer(onnx.NewFloat32s("values", []int64{2}, []float32{0, 1})))
			mask := b.Op("Unsqueeze", b.Op("ReduceSum", hot, []int64{1}, onnx.IntAttr("keepdims", 0)), []int64{-1})
			mask = b.Op("Reshape", b.Op("Expand", mask, []int64{1, 4, 2}), []int64{-1, experts})
			b.out(b.topK(b.Op("Mul", mask, s), 2))
		}, "score_first sigmoid top 2, 2 of 4 groups by max else 0, times 1"},
		"groups of two by their mean, which is half their sum": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			mean := b.Op("ReduceMean", b.grouped(s, 4), []int64{-1}, onnx.IntAttr("keepdims", 0))
			b.out(b.topK(b.Op("Where", b.bools(b.keptGroups(mean, 4, 2)), s, 0.0), 2))
		}, "score_first softmax top 2, 2 of 4 groups by top2_sum else 0, times 1"},
		"weights of logits at another temperature than those chosen among": {func(b *routerGraph) {
			_, ids := b.topK(b.softmax(b.logits), 2)
			b.out(b.gather(b.softmax(b.Op("Mul", b.logits, 0.5)), ids), ids)
		}, "score_first softmax top 2, times 1"},
		"exponentials over the sum of the chosen ones": {func(b *routerGraph) {
			e := b.Op("Exp", b.Op("Sub", b.logits, b.Op("ReduceMax", b.logits, []int64{-1})))
			w, ids := b.topK(e, 2)
			b.out(b.divided(w), ids)
		}, "score_first softmax top 2, over sum + 0, times 1"},
		"a soft cap stays before": {func(b *routerGraph) {
			capped := b.Op("Mul", b.Op("Tanh", b.Op("Div", b.logits, 2.0)), 2.0)
			w, ids := b.topK(b.softmax(capped), 2)
			b.out(b.divided(w), ids)
		}, "score_first softmax top 2, over sum + 0, times 1"},
		"a sigmoid by tanh, a sum by ones": {func(b *routerGraph) {
			s := b.Op("Mul", b.Op("Add", b.Op("Tanh", b.Op("Mul", b.logits, 0.5)), 1.0), 0.5)
			w, ids := b.topK(s, 2)
			b.out(b.Op("Div", w, b.Op("MatMul", w, b.tensor(reference.NewFloats(b.typ, []int{2, 1}, []float64{1, 1})))),
				ids)
		}, "score_first sigmoid top 2, over sum + 0, times 1"},
		"the first of a sort of pairs, by what is least": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			order := b.Ops(2, "TopK", b.Op("Neg", s), []int64{experts}, onnx.IntAttr("largest", 0))[1]
			numbers := b.Op("Expand", b.Op("Range", b.scalar(0), b.scalar(experts), b.scalar(1)), b.Op("Shape", s))
			sorted := b.Op("GatherElements", b.cast(numbers, onnx.Int32), order, onnx.IntAttr("axis", 1))
			ids := b.Op("Slice", sorted, []int64{0}, []int64{2}, []int64{1})
			b.out(b.divided(b.gather(s, ids)), ids)
		}, "score_first softmax top 2, over sum + 0, times 1"},
		"the last of an ascending sort, turned round": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			order := b.Ops(2, "TopK", s, []int64{experts}, onnx.IntAttr("largest", 0))[1]
			order = b.Op("Slice", order, []int64{-1}, []int64{math.MinInt64}, []int64{1}, []int64{-1})
			ids := b.Op("Slice", b.cast(order, onnx.Int32), []int64{0, 0}, []int64{math.MaxInt64, 2}, []int64{0, 1})
			b.out(b.gather(s, ids), ids)
		}, "score_first softmax top 2, times 1"},
		"one after the other": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			first := b.Op("ArgMax", s, onnx.IntAttr("axis", -1))
			none := b.Op("Expand", 0.0, b.Op("Shape", first))
			rest := b.Op("ScatterElements", s, first, none, onnx.IntAttr("axis", 1))
			ids := b.Op("Concat", first, b.Op("ArgMax", rest, onnx.IntAttr("axis", -1)), onnx.IntAttr("axis", 1))
			b.out(b.divided(b.gather(s, ids)), ids)
		}, "score_first softmax top 2, over sum + 0, times 1"},
		"one group": {func(b *routerGraph) {
			s := b.Op("Sigmoid", b.logits)
			kept := b.bools(b.keptGroups(b.top2Groups(s, 1), 1, 1))
			_, ids := b.topK(b.Op("Where", kept, s, math.Inf(-1)), 2)
			b.out(b.gather(s, ids), ids)
		}, "score_first sigmoid top 2, times 1"},
		"ArgMax and the greatest": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			b.out(b.Op("ReduceMax", s, []int64{-1}), b.Op("ArgMax", s, onnx.IntAttr("axis", -1)))
		}, "score_first softmax top 1, times 1"},
		"ArgMax without the axis, and a masked sum": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			id := b.Op("ArgMax", b.logits, onnx.IntAttr("axis", 1), onnx.IntAttr("keepdims", 0))
			b.out(b.Op("ReduceSum", b.Op("Mul", b.oneHot(id), s), []int64{-1}, onnx.IntAttr("keepdims", 0)), id)
		}, "score_first softmax top 1, times 1"},
		"gates of zeros and weights": {func(b *routerGraph) {
			w, ids := b.topK(b.softmax(b.logits), 2)
			b.outGates(b.Op("ScatterElements", b.spread(0), ids, w, onnx.IntAttr("axis", -1)))
		}, "score_first softmax top 2, times 1"},
		"gates by a sigmoid of minus infinities": {func(b *routerGraph) {
			v, ids := b.topK(b.logits, 2)
			b.outGates(b.Op("Sigmoid",
				b.Op("ScatterElements", b.spread(math.Inf(-1)), ids, v, onnx.IntAttr("axis", 1))))
		}, "top_k_first sigmoid top 2, times 1"},
		"gates by a softmax of masked logits": {func(b *routerGraph) {
			_, ids := b.topK(b.logits, 2)
			mask := b.Op("ScatterElements", b.spread(0), ids, b.Op("Expand", 1.0, b.Op("Shape", ids)),
				onnx.IntAttr("axis", 1))
			b.outGates(b.softmax(b.Op("Where", b.bools(mask), b.logits, math.Inf(-1))))
		}, "top_k_first softmax top 2, times 1"},
		"masked scores divided by their sum": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			_, ids := b.topK(s, 2)
			mask := b.Op("ScatterElements", b.spread(0), ids, b.Op("Expand", 1.0, b.Op("Shape", ids)),
				onnx.IntAttr("axis", 1))
			b.outGates(b.divided(b.Op("Mul", s, mask)))
		}, "score_first softmax top 2, over sum + 0, times 1"},
		"a factor of each expert stays behind": {func(b *routerGraph) {
			w, ids := b.topK(b.softmax(b.logits), 2)
			b.out(b.Op("Mul", b.divided(w), b.Op("Gather", b.weight(experts), ids)), ids)
		}, "score_first softmax top 2, over sum + 0, times 1"},
		"a sum bounded from below stays behind": {func(b *routerGraph) {
			w, ids := b.topK(b.Op("Sigmoid", b.logits), 2)
			b.out(b.Op("Div", w, b.Op("Max", b.sum(w), 1e-12)), ids)
		}, "score_first sigmoid top 2, times 1"},
		"other readers of the scores": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			w, ids := b.topK(s, 2)
			b.Model.Graph.AddOutput(b.Op("ReduceMean", b.Op("Log", s), []int64{0}))
			b.Model.Graph.AddOutput(b.Op("Mul", w, 3.0))
			b.out(b.divided(w), ids)
		}, "score_first softmax top 2, over sum + 0, times 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newRouterGraph(onnx.Float, "tokens")
			tt.build(b)
			checkRouter(t, b, tt.want)
		})
	}
}

// Logits of other types, and scores whose rows become one axis before the choice.
func TestRouterTypesAndRows(t *testing.T) {
	for _, typ := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
		b := newRouterGraph(typ, "batch", "sequence")
		s := b.Op("Reshape", b.softmax(b.cast(b.logits, onnx.Float)), []int64{-1, experts})
		w, ids := b.topK(s, 2)
		b.out(b.cast(b.divided(w), typ), ids)
		checkRouter(t, b, "score_first softmax top 2, over sum + 0, times 1")
	}
}

// The logits may be products of integers, scaled.
func TestRouterProducts(t *testing.T) {
	b := newRouterGraph(onnx.Float, "tokens")
	q := b.Ops(3, "DynamicQuantizeLinear", b.x)
	w := b.tensor(reference.NewInts(onnx.Uint8, []int{hidden, experts}, b.bytes(hidden*experts)))
	logits := b.cast(b.Op("MatMulInteger", q[0], w, q[2],
		b.tensor(reference.NewInts(onnx.Uint8, []int{}, []int64{128}))), onnx.Float)
	b.logits = b.Op("Mul", logits, b.Op("Mul", q[1], 0.01))
	b.out(b.topK(b.softmax(b.logits), 2))
	checkRouter(t, b, "score_first softmax top 2, times 1")
}

// Near misses: similar to a router, but not the op.
func TestRouterNearMisses(t *testing.T) {
	tests := map[string]struct {
		build func(b *routerGraph)
		want  string
	}{
		"the bias in the weights": {func(b *routerGraph) {
			b.out(b.topK(b.Op("Add", b.Op("Sigmoid", b.logits), b.weight(experts)), 2))
		}, "missed: weights that include the bias of the choice"},
		"another temperature, and a bias for the choice": {func(b *routerGraph) {
			_, ids := b.topK(b.Op("Add", b.Op("Mul", b.logits, 2.0), b.weight(experts)), 2)
			b.out(b.softmax(b.Op("Mul", b.gather(b.Op("Mul", b.logits, 2.0), ids), 3.0)), ids)
		}, "missed: experts other than those with the largest logits or scores"},
		"divided by the sum of all": {func(b *routerGraph) {
			s := b.Op("Sigmoid", b.logits)
			w, ids := b.topK(s, 2)
			b.out(b.Op("Div", w, b.sum(s)), ids)
		}, "missed: weights that are not divided by their sum"},
		"chosen among the tokens": {func(b *routerGraph) {
			b.out(b.topK(b.softmax(b.logits), 2, onnx.IntAttr("axis", 0)))
		}, "none"},
		"the least": {func(b *routerGraph) {
			b.out(b.topK(b.softmax(b.logits), 2, onnx.IntAttr("largest", 0)))
		}, "missed: experts other than those with the largest logits or scores"},
		"softmax over the tokens": {func(b *routerGraph) {
			b.out(b.topK(b.Op("Softmax", b.logits, onnx.IntAttr("axis", 0)), 2))
		}, "missed: scores made by Softmax, not by softmax over the experts, sigmoid or " +
			"sqrtsoftplus"},
		"softplus of the small logits alone": {func(b *routerGraph) {
			plus := b.Op("Where", b.Op("Greater", b.logits, 2.0), b.logits, b.Op("Softplus", b.logits))
			b.out(b.topK(b.Op("Sqrt", plus), 2))
		}, "missed: scores made by Sqrt, not by softmax over the experts, sigmoid or sqrtsoftplus"},
		"tanh": {func(b *routerGraph) {
			b.out(b.topK(b.Op("Tanh", b.logits), 2))
		}, "missed: scores made by Tanh, not by softmax over the experts, sigmoid or sqrtsoftplus"},
		"logits as weights": {func(b *routerGraph) {
			b.out(b.topK(b.logits, 2))
		}, "missed: logits as weights, without softmax or sigmoid"},
		"chosen by softmax, weighted by sigmoid": {func(b *routerGraph) { // shows in zeros among great logits
			_, ids := b.topK(b.softmax(b.logits), 2)
			b.out(b.gather(b.Op("Sigmoid", b.logits), ids), ids)
		}, "refused: differs…"},
		"chosen with one bias, weights by a softmax with another": {func(b *routerGraph) {
			c := b.Op("Add", b.logits, b.weight(experts))
			_, ids := b.topK(b.softmax(c), 2)
			b.out(b.gather(b.softmax(b.Op("Add", b.logits, b.weight(experts))), ids), ids)
		}, "missed: weights other than softmax over the experts, sigmoid or sqrtsoftplus of the logits"},
		"groups of four by their mean": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			mean := b.Op("ReduceMean", b.grouped(s, 2), []int64{-1}, onnx.IntAttr("keepdims", 0))
			b.out(b.topK(b.Op("Where", b.bools(b.keptGroups(mean, 2, 1)), s, 0.0), 2))
		}, "missed: scores made by Where, not by softmax over the experts, sigmoid or " +
			"sqrtsoftplus"},
		"divided by their greatest": {func(b *routerGraph) {
			w, ids := b.topK(b.softmax(b.logits), 2)
			b.out(b.Op("Div", w, b.Op("ReduceMax", w, []int64{-1})), ids)
		}, "score_first softmax top 2, times 1"},
		"more by what all scores are": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			w, ids := b.topK(s, 2)
			b.out(b.Op("Add", w, b.sum(b.Op("Mul", s, s))), ids)
		}, "missed: Add on the way to the weights"},
		"the experts of the groups that are not chosen": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			b.out(b.topK(b.Op("Where", b.bools(b.keptGroups(b.maxGroups(s, 4), 4, 2)), 0.0, s), 2))
		}, "missed: scores made by Where, not by softmax over the experts, sigmoid or " +
			"sqrtsoftplus"},
		"another mask": {func(b *routerGraph) {
			s := b.softmax(b.logits)
			b.out(b.topK(b.Op("Where", b.Op("Greater", b.logits, 0.0), s, 0.0), 2))
		}, "missed: scores made by Where, not by softmax over the experts, sigmoid or " +
			"sqrtsoftplus"},
		"weights of zero under a threshold stay behind": {func(b *routerGraph) {
			w, ids := b.topK(b.softmax(b.logits), 2)
			b.out(b.Op("Where", b.Op("Greater", w, 0.3), w, 0.0), ids)
		}, "score_first softmax top 2, times 1"},
		"words": {func(b *routerGraph) { // sampling
			w, ids := b.topK(b.softmax(b.logits), 2)
			b.Model.Graph.AddOutput(b.Op("Mul", b.Op("Unsqueeze", w, []int64{-1}),
				b.Op("Gather", b.weight(experts, 3), ids)))
		}, "none"},
		"one word": {func(b *routerGraph) { // greedy decoding
			id := b.Op("ArgMax", b.logits, onnx.IntAttr("axis", -1))
			end := b.Op("Equal", id, []int64{7})
			b.Model.Graph.AddOutput(end)
		}, "none"},
		"scores that are no product": {func(b *routerGraph) {
			rank := b.Op("ReduceSum", b.Op("Mul", b.Op("Unsqueeze", b.x, []int64{-1}), b.weight(hidden, experts)),
				[]int64{1}, onnx.IntAttr("keepdims", 0))
			b.out(b.topK(b.softmax(rank), 2))
		}, "none"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newRouterGraph(onnx.Float, "tokens")
			tt.build(b)
			checkRouter(t, b, tt.want)
		})
	}
}
