package moe_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// inTurn chooses one expert, and then the best of the others, by other logits if there are any.
func (b *mixture) inTurn(keepdims int64, other value) {
	first := b.scores.Producer.Input(0).Producer.Input(0) // the probabilities
	column := func(v value) value {
		if keepdims == 1 {
			return v
		}
		return b.Op("Unsqueeze", v, []int64{-1})
	}
	choose := func(p value) value {
		return b.Op("ArgMax", p, attr("axis", -1), attr("keepdims", keepdims))
	}
	numbers := make([]int64, b.experts)
	for e := range numbers {
		numbers[e] = int64(e)
	}
	i := choose(first)
	second := first
	if other != nil {
		second = b.Op("Softmax", other, attr("axis", -1))
	}
	j := choose(b.Op("Where", b.Op("Equal", column(i), numbers), -1.0, second))
	score := func(p, at value) value { return b.Op("GatherElements", p, column(at), attr("axis", 1)) }
	scores := b.Op("Concat", score(first, i), score(second, j), attr("axis", 1))
	b.ids, b.scores = b.Op("Concat", column(i), column(j), attr("axis", 1)),
		b.Op("Div", scores, b.Op("ReduceSum", scores, []int64{-1}))
}

func TestChosenInTurn(t *testing.T) {
	for _, keepdims := range []int64{0, 1} {
		for _, other := range []bool{false, true} {
			b := newMixture(7, 2)
			var logits value
			if other {
				logits = b.Op("MatMul", b.rows, b.weight(b.hidden, b.experts))
			}
			b.inTurn(keepdims, logits)
			list, notes := b.matches(b.equalAndMul())
			if found := len(list) == 1; found == other {
				t.Fatalf("keepdims %d, other logits %v: %d matches: %+v", keepdims, other, len(list), notes)
			}
			if !other {
				b.agrees(t, list[0])
			}
		}
	}
}

// TestRowsOfTable: rows that become matrices are experts' weights, others are not.
func TestRowsOfTable(t *testing.T) {
	b := newMixture(7, 2)
	s := gathered{b: b}
	linear := func(x value, in, out int) value {
		row := b.Op("Gather", b.weight(b.experts, out*in), s.flat())
		return s.multiply(x, b.Op("Reshape", row, []int64{-1, int64(out), int64(in)}))
	}
	x := s.rows()
	gate := linear(x, b.hidden, b.inner)
	list, notes := b.matches(s.sum(b.Op("Mul", linear(b.unit(gate, linear(x, b.hidden, b.inner)), b.inner, b.hidden),
		s.factors())))
	if len(list) != 1 {
		t.Fatalf("%d matches: %+v", len(list), notes)
	}
	b.agrees(t, list[0])

	b = newMixture(7, 2) // the next words, say
	b.Model.Graph.AddOutput(b.Op("MatMul", b.Op("Gather", b.weight(b.experts, 12), b.ids), b.weight(12, 5)))
	b.Model.Graph.AddOutput(b.scores)
	if r := router.All(patterns.Builtin().View(b.Model.Graph, infer.Analyze(b.Model))); len(r) > 0 {
		t.Errorf("a routing: %d of %d", r[0].K, r[0].Experts)
	}
}

// TestFixedCounts: rows in the order of their experts are split by constants, as a trace leaves it.
func TestFixedCounts(t *testing.T) {
	b := newMixture(7, 2)
	flat := b.Op("Reshape", b.ids, []int64{-1})
	sorted := b.Ops(2, "TopK", flat, b.Op("Shape", flat), attr("axis", 0), attr("largest", 0))[1]
	token := b.Op("Div", sorted, b.k)
	rows := b.Ops(b.experts, "Split", b.Op("Gather", b.rows, token), []int64{3, 1, 2, 5, 4, 1, 4}, attr("axis", 0))
	var parts []any
	for _, r := range rows {
		parts = append(parts, b.expert(r))
	}
	y := b.Op("Concat", append(parts, attr("axis", 0))...)
	y = b.Op("Mul", y, b.Op("Unsqueeze", b.Op("Gather", b.Op("Reshape", b.scores, []int64{-1}), sorted), []int64{-1}))
	list, notes := b.matches(b.Op("ScatterND", b.zeros(), b.Op("Unsqueeze", token, []int64{-1}), y,
		onnx.StringAttr("reduction", "add")))
	if len(list) > 0 || len(notes) != 1 || !strings.Contains(notes[0].Reason.Error(), "by the sizes [3 1 2 5 4 1 4]") {
		t.Errorf("%d matches, %+v", len(list), notes)
	}
}
