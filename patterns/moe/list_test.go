package moe_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/moe"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// evaluated runs the model on tokens and returns the values of the main graph.
func (b *mixture) evaluated(t *testing.T) map[value]*reference.Tensor {
	t.Helper()
	x := make([]float64, 2*5*b.hidden)
	for i := range x {
		x[i] = b.r.NormFloat64()
	}
	env := map[value]*reference.Tensor{b.x: reference.NewFloats(onnx.Float, []int{2, 5, b.hidden}, x)}
	e := reference.NewForOpset(20, nil, reference.Options{Exact: true})
	if err := e.Eval(b.Model.Graph.Nodes, env); err != nil {
		t.Fatalf("the model of the test: %v", err)
	}
	return env
}

// find returns the matches of one pattern.
func (b *mixture) find(pattern string) ([]*patterns.Match, []*match.Miss) {
	only := patterns.Builtin().Select(func(p *patterns.Pattern) bool { return p.Name == pattern })
	return only.Find(b.Model.Graph, infer.Analyze(b.Model))
}

// read finds the experts of the only router of the model whose output is y.
func (b *mixture) read(t *testing.T, y value) (m *patterns.Match, why string) {
	t.Helper()
	b.Model.Graph.AddOutput(b.Op("Identity", b.Op("Reshape", y, b.Op("Shape", b.x))))
	g := patterns.Builtin().View(b.Model.Graph, infer.Analyze(b.Model))
	list := router.All(g)
	if len(list) != 1 {
		t.Fatalf("%d routings", len(list))
	}
	e, reason := moe.Behind(g, list[0])
	if e == nil {
		return nil, reason.Error()
	}
	matches, _ := b.find("MoE")
	return matches[0], ""
}

// agrees compares the op of a match with the model, on the same tokens.
func (b *mixture) agrees(t *testing.T, m *patterns.Match) {
	t.Helper()
	env := b.evaluated(t)
	want := env[m.Outputs[0]]
	for i, got := range b.apply(t, m, env) {
		if math.Abs(got-want.F[i]) > 1e-5*(1+math.Abs(want.F[i])) {
			t.Fatalf("element %d is %v, the model gives %v\n%s", i, got, want.F[i], m.Replacement.Text())
		}
	}
}

// apply computes the replacement of a match by the catalogue's definition of the op.
func (b *mixture) apply(t *testing.T, m *patterns.Match, env map[value]*reference.Tensor) []float64 {
	t.Helper()
	g := m.Replacement
	values := map[value]*reference.Tensor{}
	for i, v := range m.Inputs {
		if values[g.Inputs[i]] = env[v]; v.Constant() != nil {
			c, err := reference.FromONNX(v.Constant())
			if err != nil {
				t.Fatal(err)
			}
			values[g.Inputs[i]] = c
		}
	}
	site := fused.Site{Attributes: m.Attributes, Opset: 20}
	for _, n := range g.Nodes {
		if n.OpType != "MoE" {
			continue
		}
		for i, v := range n.Inputs {
			switch {
			case v == nil:
				site.Types = append(site.Types, onnx.Undefined)
			case i == fused.MoEIDs:
				site.Types = append(site.Types, onnx.Int64)
			default:
				site.Types = append(site.Types, onnx.Float)
			}
		}
	}
	f, err := fused.Lookup("MoE").Function(site)
	if err != nil {
		t.Fatal(err)
	}
	f.Overload = ""
	if err := reference.NewForOpset(20, []*onnx.Function{f}, reference.Options{Exact: true}).Eval(g.Nodes,
		values); err != nil {
		t.Fatal(err)
	}
	return values[g.Outputs[0]].F
}

func TestExpertsOneByOne(t *testing.T) {
	for _, test := range mixtureForms {
		t.Run(test.name, func(t *testing.T) {
			b := newMixture(7, 2)
			y := test.build(b)
			m, why := b.read(t, y)
			if m == nil {
				t.Fatal(why)
			}
			if strings.HasPrefix(test.name, "those chosen") {
				return // runs only for some inputs
			}
			b.agrees(t, m)
		})
	}
}

func TestExpertsAbsent(t *testing.T) {
	tests := []struct {
		name  string
		build func(b *mixture) value
		want  string
	}{
		{"left out", func(b *mixture) value {
			return b.sum(func(e int) value {
				if e == 2 || e == 4 {
					return nil
				}
				return b.Op("Mul", b.expert(b.rows), b.gate(e))
			})
		}, "the router has 7 experts, the graph holds 5: 2, 4 are absent"},
		{"one", func(b *mixture) value {
			return b.sum(func(e int) value {
				if e == 6 {
					return nil
				}
				return b.Op("Mul", b.expert(b.rows), b.gate(e))
			})
		}, "the router has 7 experts, the graph holds 6: 6 is absent"},
		{"those that were seen", func(b *mixture) value { return b.unrolled([]int{0, 2, 3, 4, 6}, false) },
			"the router has 7 experts, the graph holds 5: it runs when 5 are chosen"},
		{"another activation", func(b *mixture) value {
			return b.sum(func(e int) value {
				if b.style.activation = ""; e == 3 {
					b.style.activation = "clamped"
				}
				return b.Op("Mul", b.expert(b.rows), b.gate(e))
			})
		}, "have different activations"},
		{"no weights", func(b *mixture) value {
			return b.sum(func(e int) value {
				return b.Op("Add", b.expert(b.rows), b.Op("Mul", b.gate(e), 0.0))
			})
		}, "not the weighted sum"},
		{"tanh", func(b *mixture) value {
			return b.sum(func(e int) value {
				a := b.Op("Tanh", b.linear(b.rows, b.hidden, b.inner))
				return b.Op("Mul", b.linear(a, b.inner, b.hidden), b.gate(e))
			})
		}, "does not have the activation"},
		{"a factor for each channel", func(b *mixture) value {
			scale := b.weight(b.hidden)
			return b.sum(func(e int) value {
				return b.Op("Mul", b.Op("Mul", b.expert(b.rows), scale), b.gate(e))
			})
		}, "not the weighted sum"},
		{"a bias beside the weights", func(b *mixture) value {
			return b.sum(func(e int) value {
				return b.Op("Add", b.Op("Mul", b.expert(b.rows), b.gate(e)), b.weight(b.hidden))
			})
		}, "not the weighted sum"},
		{"two of three", func(b *mixture) value {
			k := b.k
			b.ids, b.scores = b.Op("Slice", b.ids, []int64{1}, []int64{int64(k)}, []int64{1}),
				b.Op("Slice", b.scores, []int64{1}, []int64{int64(k)}, []int64{1})
			return b.equalAndMul()
		}, "depend on the other chosen experts"},
		{"a bias for each place", func(b *mixture) value {
			bias, y := b.weight(b.k, b.hidden), b.zeros()
			for e := range b.experts {
				place, _ := b.hit(e)
				v, token := b.routed(e, func(x value) value {
					return b.Op("Add", b.expert(x), b.Op("Gather", bias, place))
				})
				y = b.Op("ScatterND", y, b.Op("Unsqueeze", token, []int64{1}), v, onnx.StringAttr("reduction", "add"))
			}
			return y
		}, "not the weighted sum"},
		{"a bias for one of two places", func(b *mixture) value {
			up, down, bias := make([]value, b.experts), make([]value, b.experts), b.weight(b.hidden)
			for e := range up {
				up[e], down[e] = b.weight(b.hidden, b.inner), b.weight(b.inner, b.hidden)
			}
			slot := func(v value, j int) value {
				return b.Op("Gather", v, []int64{int64(j)}, attr("axis", 1))
			}
			ids, scores := b.ids, b.scores
			var y value
			for j := range b.k {
				b.ids, b.scores = slot(ids, j), slot(scores, j)
				part := b.sum(func(e int) value {
					v := b.Op("MatMul", b.Op("Gelu", b.Op("MatMul", b.rows, up[e])), down[e])
					if j == 0 {
						v = b.Op("Add", v, bias)
					}
					return b.Op("Mul", v, b.gate(e))
				})
				if y == nil {
					y = part
				} else {
					y = b.Op("Add", y, part)
				}
			}
			return y
		}, "two biases"},
		{"three products", func(b *mixture) value {
			b.style.activation = "gelu"
			return b.sum(func(e int) value {
				return b.Op("Mul", b.linear(b.expert(b.rows), b.hidden, b.hidden), b.gate(e))
			})
		}, "more than two products"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newMixture(7, 2)
			m, why := b.read(t, test.build(b))
			if m != nil || !strings.Contains(why, test.want) {
				t.Fatalf("%v, %q, expected %q", m != nil, why, test.want)
			}
		})
	}
}

// Without tokens over a capacity the result is no longer a sum, but this shows only if there are as many.
func TestCapacity(t *testing.T) {
	for _, counted := range []bool{false, true} {
		b := newMixture(7, 2)
		y := b.sum(func(e int) value {
			gate := b.gate(e)
			if counted {
				place := b.Op("CumSum", b.Op("Cast", b.Op("Greater", gate, 0.0), attr("to", 7)), 0)
				gate = b.Op("Where", b.Op("LessOrEqual", place, 64), gate, 0.0)
			}
			return b.Op("Mul", gate, b.expert(b.rows))
		})
		b.Model.Graph.AddOutput(b.Op("Identity", b.Op("Reshape", y, b.Op("Shape", b.x))))
		matches, notes := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
		found := slices.ContainsFunc(matches, func(m *patterns.Match) bool { return m.Pattern == "MoE" })
		told := slices.ContainsFunc(notes, func(m *match.Miss) bool {
			return m.Pattern == "MoE" && strings.Contains(m.Reason.Error(), "over a capacity")
		})
		if found == counted || told != counted {
			t.Errorf("counted %v: found %v, told %v", counted, found, told)
		}
	}
}

// An even number of experts, each at one index of the choice in a run: experts at another index are not absent.
func TestPlaceInChoice(t *testing.T) {
	b := newMixture(6, 2)
	b.ids, b.scores = b.Op("Slice", b.ids, []int64{1}, []int64{2}, []int64{1}),
		b.Op("Slice", b.scores, []int64{1}, []int64{2}, []int64{1})
	if m, why := b.read(t, b.equalAndMul()); m != nil || !strings.Contains(why, "depend on the other chosen experts") {
		t.Errorf("%v, %q", m != nil, why)
	}
}

// Experts that return the token, as in LongCat, are not experts of the op.
func TestExpertsThatReturnTheToken(t *testing.T) {
	b := newMixture(7, 2)
	m, why := b.read(t, b.sum(func(e int) value {
		if e == 4 {
			return b.Op("Mul", b.rows, b.gate(e))
		}
		return b.Op("Mul", b.expert(b.rows), b.gate(e))
	}))
	if m != nil || !strings.Contains(why, "expert 4 returns a value that no product with weights computes, such as "+
		"the token itself") {
		t.Errorf("%v, %q", m != nil, why)
	}
}

// If a run shows that an expert is absent, no other reading is tried.
func TestAbsentIsFinal(t *testing.T) {
	b := newMixture(7, 2)
	gateUp, down := b.weight(b.experts, b.hidden, 2*b.inner), b.weight(b.experts, b.inner, b.hidden)
	y := b.sum(func(e int) value {
		if e == 4 {
			return nil
		}
		h := b.Op("MatMul", b.rows, b.Op("Gather", gateUp, e))
		return b.Op("Mul", b.Op("MatMul", b.unit(b.halves(h)), b.Op("Gather", down, e)), b.gate(e))
	})
	b.Model.Graph.AddOutput(b.Op("Identity", b.Op("Reshape", y, b.Op("Shape", b.x))))
	matches, notes := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
	if slices.ContainsFunc(matches, func(m *patterns.Match) bool { return m.Pattern == "MoE" }) ||
		!slices.ContainsFunc(notes, func(m *match.Miss) bool {
			return strings.Contains(m.Reason.Error(), "the graph holds 6: 4 is absent")
		}) {
		t.Errorf("%d matches", len(matches))
	}
}

// Graphs that contradict themselves must end in a note, or in a match that the check refuses.
func TestMutatedMixtures(t *testing.T) {
	ops := []string{"Add", "Mul", "MatMul", "Gather", "Concat", "Reshape", "Squeeze", "Transpose", "Split", "Slice",
		"Unsqueeze", "Gemm", "Expand", "GatherND"}
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 9))
		b := newMixture(7, 2)
		y := mixtureForms[r.IntN(len(mixtureForms))].build(b)
		b.Model.Graph.AddOutput(b.Op("Identity", b.Op("Reshape", y, b.Op("Shape", b.x))))
		var nodes []*onnx.Node
		b.Model.Graph.Walk(func(g *onnx.Graph) { nodes = append(nodes, g.Nodes...) })
		constants := b.Model.Graph.Initializers()
		for range 1 + r.IntN(3) {
			n := nodes[r.IntN(len(nodes))]
			switch at := r.IntN(4); {
			case at == 0 && len(n.Inputs) > 0:
				n.SetInput(r.IntN(len(n.Inputs)), constants[r.IntN(len(constants))])
			case at == 1 && len(n.Attributes) > 0:
				n.Attributes[r.IntN(len(n.Attributes))].Int = int64(r.IntN(7)) - 3
			case at == 2 && len(n.Subgraphs()) == 0:
				n.OpType = ops[r.IntN(len(ops))]
			case len(n.Inputs) > 1:
				first, second := n.Inputs[0], n.Inputs[1]
				n.SetInput(0, second)
				n.SetInput(1, first)
			}
		}
		patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
	}
}
