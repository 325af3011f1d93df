package moe_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/patterns"
)

// leadingForms take two of a longer list of chosen or sorted experts.
var leadingForms = []struct {
	name string
	take func(b *mixture, v value, of int) value
}{
	{"sliced", func(b *mixture, v value, _ int) value {
		return b.Op("Slice", v, []int64{0}, []int64{2}, []int64{1})
	}},
	{"split", func(b *mixture, v value, of int) value {
		return b.Ops(2, "Split", v, []int64{2, int64(of - 2)}, attr("axis", -1))[0]
	}},
	{"the last", func(b *mixture, v value, of int) value {
		return b.Op("Slice", v, []int64{int64(of - 2)}, []int64{int64(of)}, []int64{1})
	}},
}

func TestLeadingOfMore(t *testing.T) {
	for _, form := range leadingForms {
		for _, of := range []int{7, 4} { // all of them, or more than are taken
			for _, normed := range []bool{false, true} {
				b := newMixture(7, of)
				values := b.scores
				if !normed {
					values = values.Producer.Input(0)
				}
				b.ids, b.scores, b.k = form.take(b, b.ids, of), form.take(b, values, of), 2
				experts, notes := b.matches(b.equalAndMul())
				routers, _ := b.find("TopKRouter")
				if form.name == "the last" {
					if len(experts) > 0 || topK(routers) == 2 {
						t.Errorf("%s of %d: %d mixtures, %d routers", form.name, of, len(experts), len(routers))
					}
					continue
				}
				if len(experts) != 1 {
					t.Fatalf("%s of %d: %d mixtures: %+v", form.name, of, len(experts), notes[0].Reason)
				}
				b.agrees(t, experts[0])
				// A softmax over all experts has the sum 1 before and after.
				if k, whole := topK(routers), !normed || of == 7; whole && k != 2 || !whole && k != 0 {
					t.Errorf("%s of %d, normed %v: top_k of the router is %d", form.name, of, normed, k)
				}
			}
		}
	}
}

// topK is the attribute of the only router; 0 without one.
func topK(routers []*patterns.Match) int64 {
	if len(routers) != 1 {
		return 0
	}
	for _, a := range routers[0].Attributes {
		if a.Name == "top_k" {
			return a.Int
		}
	}
	return 0
}
