package patterns

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// inTurn chooses one expert, and then the best of the others: in other logits, if there are any.
func (b *mixture) inTurn(keepdims int64, other *onnx.Value) {
	first := b.scores.Producer.Input(0).Producer.Input(0) // the probabilities
	column := func(v *onnx.Value) *onnx.Value {
		if keepdims == 1 {
			return v
		}
		return b.op("Unsqueeze", v, []int64{-1})
	}
	choose := func(p *onnx.Value) *onnx.Value {
		return b.op("ArgMax", p, attr("axis", -1), attr("keepdims", keepdims))
	}
	numbers := make([]int64, b.experts)
	for e := range numbers {
		numbers[e] = int64(e)
	}
	i := choose(first)
	second := first
	if other != nil {
		second = b.op("Softmax", other, attr("axis", -1))
	}
	j := choose(b.op("Where", b.op("Equal", column(i), numbers), -1.0, second))
	score := func(p, at *onnx.Value) *onnx.Value { return b.op("GatherElements", p, column(at), attr("axis", 1)) }
	scores := b.op("Concat", score(first, i), score(second, j), attr("axis", 1))
	b.ids, b.scores = b.op("Concat", column(i), column(j), attr("axis", 1)), b.op("Div", scores, b.op("ReduceSum", scores, []int64{-1}))
}

func TestChosenInTurn(t *testing.T) {
	for _, keepdims := range []int64{0, 1} {
		for _, other := range []bool{false, true} {
			b := newMixture(7, 2)
			var logits *onnx.Value
			if other {
				logits = b.op("MatMul", b.rows, b.weight(b.hidden, b.experts))
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

// TestRowsOfTable: rows that are made matrices of are experts' weights, others are none.
func TestRowsOfTable(t *testing.T) {
	b := newMixture(7, 2)
	s := gathered{b: b}
	linear := func(x *onnx.Value, in, out int) *onnx.Value {
		row := b.op("Gather", b.weight(b.experts, out*in), s.flat())
		return s.multiply(x, b.op("Reshape", row, []int64{-1, int64(out), int64(in)}))
	}
	x := s.rows()
	gate := linear(x, b.hidden, b.inner)
	list, notes := b.matches(s.sum(b.op("Mul", linear(b.unit(gate, linear(x, b.hidden, b.inner)), b.inner, b.hidden), s.factors())))
	if len(list) != 1 {
		t.Fatalf("%d matches: %+v", len(list), notes)
	}
	b.agrees(t, list[0])

	b = newMixture(7, 2) // words that follow, say
	b.m.Graph.AddOutput(b.op("MatMul", b.op("Gather", b.weight(b.experts, 12), b.ids), b.weight(12, 5)))
	b.m.Graph.AddOutput(b.scores)
	if r := router.All(match.New(b.m.Graph, infer.Analyze(b.m), Builtin().index)); len(r) > 0 {
		t.Errorf("a routing: %s", describe(r[0]))
	}
}

// TestFixedCounts: rows in the order of their experts that are split by constants, as a trace leaves it.
func TestFixedCounts(t *testing.T) {
	b := newMixture(7, 2)
	flat := b.op("Reshape", b.ids, []int64{-1})
	sorted := b.ops("TopK", 2, flat, b.op("Shape", flat), attr("axis", 0), attr("largest", 0))[1]
	token := b.op("Div", sorted, b.k)
	rows := b.ops("Split", b.experts, b.op("Gather", b.rows, token), []int64{3, 1, 2, 5, 4, 1, 4}, attr("axis", 0))
	var parts []any
	for _, r := range rows {
		parts = append(parts, b.expert(r))
	}
	y := b.op("Concat", append(parts, attr("axis", 0))...)
	y = b.op("Mul", y, b.op("Unsqueeze", b.op("Gather", b.op("Reshape", b.scores, []int64{-1}), sorted), []int64{-1}))
	list, notes := b.matches(b.op("ScatterND", b.zeros(), b.op("Unsqueeze", token, []int64{-1}), y, onnx.StringAttr("reduction", "add")))
	if len(list) > 0 || len(notes) != 1 || !strings.Contains(notes[0].Reason.Error(), "by the sizes [3 1 2 5 4 1 4]") {
		t.Errorf("%d matches, %+v", len(list), notes)
	}
}
