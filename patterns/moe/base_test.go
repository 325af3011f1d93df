package moe_test

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// baseForms are the forms of mixtureForms that add to a base.
var baseForms = []string{"ScatterElements", "ScatterND", "If", "Loop", "Loop over tokens of the expert", "Scan",
	"grouped", "weights in the branches"}

// matches finds the experts of the model whose output is y.
func (b *mixture) matches(y value) (list []*patterns.Match, notes []*match.Miss) {
	b.Model.Graph.AddOutput(b.Op("Identity", b.Op("Reshape", y, b.Op("Shape", b.x))))
	return b.find("MoE")
}

// normed makes the router and the experts read the norm of the tokens, and returns the tokens.
func (b *mixture) normed(t *testing.T) (from value) {
	t.Helper()
	if err := b.Model.Graph.RemoveNodes(b.router()); err != nil {
		t.Fatal(err)
	}
	from = b.rows
	mean := b.Op("ReduceMean", b.Op("Mul", from, from), []int64{-1})
	b.route(b.Op("Mul", b.Op("Div", from, b.Op("Sqrt", b.Op("Add", mean, 1e-6))), b.weight(b.hidden)))
	return from
}

func TestExpertsOntoBase(t *testing.T) {
	bases := []struct {
		name string
		of   func(t *testing.T, b *mixture) func() value
	}{
		{"the tokens", func(_ *testing.T, b *mixture) func() value {
			return func() value { return b.rows }
		}},
		{"a shared expert", func(_ *testing.T, b *mixture) func() value {
			shared := b.expert(b.rows)
			return func() value { return shared }
		}},
		{"a shared expert behind the others", func(_ *testing.T, b *mixture) func() value {
			return func() value { return b.expert(b.rows) }
		}},
		{"what the tokens are the norm of", func(t *testing.T, b *mixture) func() value {
			from := b.normed(t)
			return func() value { return from }
		}},
	}
	for _, form := range mixtureForms {
		if !slices.Contains(baseForms, form.name) {
			continue
		}
		for _, base := range bases {
			t.Run(form.name+" onto "+base.name, func(t *testing.T) {
				b := newMixture(7, 2)
				b.base = base.of(t, b)
				list, notes := b.matches(form.build(b))
				if len(list) != 1 {
					t.Fatalf("%d matches: %+v", len(list), notes[0].Reason)
				}
				b.agrees(t, list[0])
			})
		}
	}
}

// TestExpertsOntoNoBase adds rows that are not a base: twice, scaled, or scaled by the choice.
func TestExpertsOntoNoBase(t *testing.T) {
	tests := []struct {
		name string
		make func(b *mixture, y value) value
	}{
		{"twice", func(b *mixture, y value) value { return b.Op("Add", y, b.rows) }},
		{"subtracted", func(b *mixture, y value) value {
			return b.Op("Sub", b.Op("Sub", y, b.rows), b.rows)
		}},
		{"times a factor of the choice", func(b *mixture, y value) value {
			return b.Op("Mul", y, b.gate(3))
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newMixture(7, 2)
			sum := b.rows
			for e := range b.experts {
				v, token := b.routed(e, b.expert)
				if sum = b.Op("ScatterND", sum, b.Op("Unsqueeze", token, []int64{1}), v,
					onnx.StringAttr("reduction", "add")); e == 2 {
					sum = test.make(b, sum)
				}
			}
			if list, _ := b.matches(sum); slices.ContainsFunc(list, func(m *patterns.Match) bool {
				return slices.Contains(m.Nodes, sum.Producer)
			}) {
				t.Errorf("a match: %s", list[0].Replacement.Text())
			}
		})
	}
}
