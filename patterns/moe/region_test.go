package moe_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/moe"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// regions finds the regions after the routings of a model.
func (b *mixture) regions() (list []*moe.Region, whys []string) {
	g := patterns.Builtin().View(b.Model.Graph, infer.Analyze(b.Model))
	for _, r := range router.All(g) {
		if found, why := moe.Regions(g, r, nil); len(found) > 0 {
			list = append(list, found[0])
		} else {
			whys = append(whys, why.Error())
		}
	}
	return list, whys
}

// layer makes a mixture of rows and returns its result for each token, in the shape of rows.
func (b *mixture) layer(rows value) value {
	b.route(rows)
	return gathered{b: b}.all()
}

// share returns how often each expert was chosen, as a loss reads it.
func (b *mixture) share() value {
	values := b.Model.Graph.AddInitializer(onnx.NewFloat32s("values", []int64{2}, []float32{0, 1}))
	return b.Op("ReduceMean", b.Op("OneHot", b.ids, b.experts, values), []int64{0, 1}, attr("keepdims", 0))
}

func TestRegions(t *testing.T) {
	tests := []struct {
		name  string
		build func(b *mixture) (x, y []value)
	}{
		{"one layer", func(b *mixture) (x, y []value) {
			sum := gathered{b: b}.all()
			b.Model.Graph.AddOutput(b.Op("Add", b.rows, sum))
			return []value{b.rows}, []value{sum}
		}},
		{"an axis of one place", func(b *mixture) (x, y []value) {
			s := gathered{b: b}
			each := b.Op("Mul", s.linear(s.activated(s.rows()), b.inner, b.hidden), s.factors())
			each = b.Op("Reshape", each, []int64{-1, int64(b.k), int64(b.hidden)})
			sum := b.Op("Reshape", b.Op("ReduceSum", each, []int64{1}), []int64{-1, int64(b.hidden)})
			b.Model.Graph.AddOutput(b.Op("Add", b.rows, sum))
			return []value{b.rows}, []value{sum}
		}},
		{"three layers", func(b *mixture) (x, y []value) {
			h, sum := b.rows, gathered{b: b}.all()
			for range 2 {
				x, y = append(x, h), append(y, sum)
				h = b.Op("Add", h, sum)
				sum = b.layer(h)
			}
			b.Model.Graph.AddOutput(b.Op("Add", h, sum))
			return append(x, h), append(y, sum)
		}},
		{"three layers with losses", func(b *mixture) (x, y []value) {
			h, sum, loss := b.rows, gathered{b: b}.all(), b.share()
			for range 2 {
				x, y = append(x, h), append(y, sum)
				h = b.Op("Add", h, sum)
				sum = b.layer(h)
				loss = b.Op("Add", loss, b.share())
			}
			b.Model.Graph.AddOutput(b.Op("Add", h, sum))
			b.Model.Graph.AddOutput(loss)
			return append(x, h), append(y, sum)
		}},
		{"the choice is given out", func(b *mixture) (x, y []value) {
			sum := gathered{b: b}.all()
			for _, v := range []value{b.Op("Add", b.rows, sum), b.ids, b.scores,
				b.Op("Cast", b.ids, attr("to", 1))} {
				b.Model.Graph.AddOutput(v)
			}
			return []value{b.rows}, []value{sum}
		}},
		{"a loss beside", func(b *mixture) (x, y []value) {
			share := b.share()
			sum := gathered{b: b}.all()
			b.Model.Graph.AddOutput(b.Op("Add", b.rows, sum))
			b.Model.Graph.AddOutput(b.Op("ReduceSum", b.Op("Mul", share, share), attr("keepdims", 0)))
			return []value{b.rows}, []value{sum}
		}},
		{"a tensor of the shape alone", func(b *mixture) (x, y []value) {
			sum := gathered{b: b}.all()
			sum = b.Op("Add", b.Op("Expand", 0.0, b.Op("Shape", b.rows)), sum)
			b.Model.Graph.AddOutput(b.Op("Add", b.rows, sum))
			return []value{b.rows}, []value{sum.Producer.Inputs[1]}
		}},
		{"back in the shape of the input", func(b *mixture) (x, y []value) {
			s := gathered{b: b}
			in := b.Op("Identity", b.x)
			b.rows = b.Op("Reshape", in, []int64{-1, int64(b.hidden)})
			y3 := b.Op("Reshape", s.all(), b.Op("Shape", in))
			b.Model.Graph.AddOutput(b.Op("Add", in, y3))
			return []value{b.rows}, []value{y3.Producer.Inputs[0]}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newMixture(5, 2)
			x, y := test.build(b)
			list, whys := b.regions()
			if len(list) != len(y) || len(whys) > 0 {
				t.Fatalf("%d regions, expected %d: %q", len(list), len(y), whys)
			}
			for i, reg := range list {
				if reg.X() != x[i] || reg.Result != y[i] {
					t.Errorf("the region goes from %q to %q, expected from %q to %q", reg.X().Name, reg.Result.Name,
						x[i].Name, y[i].Name)
				}
				for _, n := range reg.Nodes {
					if n.Is("Softmax") || n.Is("TopK") || n == reg.X().Producer {
						t.Errorf("node %q (%s) is no part of the region", n.Name, n.OpType)
					}
				}
			}
		})
	}
}

// TestExpertsInBranch has a router and its experts in a branch of an If, and their weights outside.
func TestExpertsInBranch(t *testing.T) {
	b := newMixture(5, 2)
	if err := b.Model.Graph.RemoveNodes(b.router()); err != nil {
		t.Fatal(err)
	}
	outer, rows := b.Graph, b.rows
	then, other := outer.NewSubgraph("then"), outer.NewSubgraph("else")
	b.Graph = other
	other.AddOutput(b.Op("Identity", rows))
	b.Graph = then
	b.style.packed = "halves"
	then.AddOutput(b.layer(b.Op("Identity", rows)))
	b.Graph = outer
	cond := b.Op("Equal", b.Op("Shape", rows, attr("start", 0), attr("end", 1)), []int64{1})
	outer.AddOutput(b.Op("If", cond, onnx.GraphAttr("then_branch", then), onnx.GraphAttr("else_branch", other)))
	matches, _ := patterns.Builtin().Find(then, infer.Analyze(b.Model))
	found := slices.IndexFunc(matches, func(m *patterns.Match) bool { return m.Op == "MoE" })
	if found < 0 {
		t.Fatalf("no experts among %d matches", len(matches))
	}
	if got, want := summary(matches[found]), "silu halves out_in out_in"; got != want {
		t.Errorf("found %s, expected %s", got, want)
	}
}

func TestNoRegion(t *testing.T) {
	tests := []struct {
		name  string
		build func(b *mixture)
		want  string
	}{
		{"parts apart", func(b *mixture) {
			s := gathered{b: b}
			y := b.Op("Mul", s.linear(s.activated(s.rows()), b.inner, b.hidden), s.factors())
			b.Model.Graph.AddOutput(y)
		}, "do not lead to one value"},
		{"a mask of tokens", func(b *mixture) {
			mask := b.Model.Graph.AddInput("mask",
				onnx.Type{DataType: onnx.Float, HasShape: true,
					Dims: []onnx.Dim{{Value: -1, Param: "tokens"}, {Value: 1}}})
			s := gathered{b: b}
			y := b.Op("Mul", s.linear(s.activated(s.rows()), b.inner, b.hidden), s.factors())
			y = s.sum(b.Op("Mul", y, mask))
			b.Model.Graph.AddOutput(b.Op("Add", b.rows, y))
		}, `more than one tensor: "mask"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newMixture(5, 2)
			test.build(b)
			list, whys := b.regions()
			if len(list) > 0 || len(whys) != 1 || !strings.Contains(whys[0], test.want) {
				t.Fatalf("%d regions, %q, expected %q", len(list), whys, test.want)
			}
		})
	}
}
