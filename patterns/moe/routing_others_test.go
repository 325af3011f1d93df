package moe_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestListedExperts: a table lists the experts of each word, and the logits only determine their weights. The op cannot
// be used if the table lists experts that do not exist.
func TestListedExperts(t *testing.T) {
	for _, last := range []int64{6, 7, -1} {
		b := newMixture(7, 2)
		sum := b.Op("ReduceSum", b.Op("Mul", b.rows, 10.0), []int64{-1}, attr("keepdims", 0))
		words := b.Op("Mod", b.Op("Cast", b.Op("Abs", sum), attr("to", 7)), 5)
		table := b.Model.Graph.AddInitializer(mustInts(t, []int{5, 2}, []int64{3, 0, 1, 2, 5, 4, 0, 1, 2, last}))
		scores := b.Op("Sqrt", b.Op("Softplus", b.Op("MatMul", b.rows, b.weight(b.hidden, b.experts))))
		b.ids = b.Op("Gather", table, words)
		picked := b.Op("GatherElements", scores, b.ids, attr("axis", 1))
		b.scores = b.Op("Div", picked, b.Op("ReduceSum", picked, []int64{-1}))
		list, notes := b.matches(b.equalAndMul())
		if last != 6 {
			if len(list) > 0 {
				t.Errorf("the table lists %d: a match", last)
			}
			continue
		}
		if len(list) != 1 {
			t.Fatalf("%d matches: %+v", len(list), notes)
		}
		b.agrees(t, list[0])
	}
}

func mustInts(t *testing.T, shape []int, v []int64) *onnx.Tensor {
	t.Helper()
	x, err := reference.NewInts(onnx.Int64, shape, v).ToONNX("table")
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestThresholds has routers that choose all experts whose scores reach the second best score.
func TestThresholds(t *testing.T) {
	for name, wrong := range map[string]bool{"experts": true, "words": false} {
		b := newMixture(7, 2)
		last := b.Op("Slice", b.ids.Producer.Outputs[0], []int64{1}, []int64{2}, []int64{-1})
		all := b.ids.Producer.Inputs[0]
		kept := b.Op("Where", b.Op("Less", all, last), 0.0, all)
		y := b.Op("Div", kept, b.Op("ReduceSum", kept, []int64{-1}))
		if wrong {
			y = b.sum(func(e int) value { return b.Op("Mul", b.column(y, e), b.expert(b.rows)) })
		}
		b.Model.Graph.AddOutput(y)
		_, notes := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
		said := slices.ContainsFunc(notes, func(m *match.Miss) bool {
			return m.Reason != nil && strings.Contains(m.Reason.Error(), "chosen by a threshold")
		})
		if said != wrong {
			t.Errorf("%s: %v, %+v", name, said, notes)
		}
	}
}

// TestWeightsWithOthers has routers with additional numbers for experts that every token goes to. Their weights are
// normalized together with the weights of the chosen experts.
func TestWeightsWithOthers(t *testing.T) {
	for _, others := range []int{1, 2} {
		b := newMixture(7, 2)
		logits := b.Op("MatMul", b.rows, b.weight(b.hidden, b.experts+others))
		part := func(v value, from, to int) value {
			return b.Op("Slice", v, []int64{int64(from)}, []int64{int64(to)}, []int64{-1})
		}
		routed := part(b.Op("Sigmoid", logits), 0, b.experts)
		b.ids = b.Ops(2, "TopK", b.Op("Add", routed, b.weight(b.experts)), []int64{2})[1]
		both := b.Op("Concat", b.Op("GatherElements", part(logits, 0, b.experts), b.ids, attr("axis", 1)),
			part(logits, b.experts, b.experts+others), attr("axis", -1))
		both = b.Op("Softmax", both, attr("axis", -1))
		b.scores = part(both, 0, 2)
		y := b.equalAndMul()
		dense := b.Op("MatMul", b.Op("Relu", b.Op("MatMul", b.rows, b.weight(b.hidden, others))),
			b.weight(others, b.hidden))
		b.Model.Graph.AddOutput(b.Op("Add", y, b.Op("Mul", dense, part(both, 2, 3))))
		list, notes := b.matches(y)
		if len(list) != 1 {
			t.Fatalf("%d others: %d matches: %+v", others, len(list), notes)
		}
		b.agrees(t, list[0])
		for _, v := range list[0].Inputs {
			if strings.HasPrefix(v.Name, "softmax") {
				t.Errorf("%d others: the experts' weights are %q, those of all", others, v.Name)
			}
		}
	}
}
