package moe_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
)

// gathered sends every token through the weights of its experts, which are gathered from stacked ones.
type gathered struct {
	b     *mixture
	nd    bool // by GatherND
	inOut bool
}

// flat returns the ids of all tokens in one row.
func (s gathered) flat() value { return s.b.Op("Reshape", s.b.ids, []int64{-1}) }

func (s gathered) pick(w value) value {
	if s.nd {
		return s.b.Op("GatherND", w, s.b.Op("Unsqueeze", s.flat(), []int64{-1}))
	}
	return s.b.Op("Gather", w, s.flat())
}

// stack returns a weight of all experts.
func (s gathered) stack(in, out int) value {
	if s.inOut {
		return s.b.weight(s.b.experts, in, out)
	}
	return s.b.weight(s.b.experts, out, in)
}

// multiply returns the product of each row with its gathered weight.
func (s gathered) multiply(x, w value) value {
	if s.inOut {
		return s.b.Op("Squeeze", s.b.Op("MatMul", s.b.Op("Unsqueeze", x, []int64{1}), w), []int64{1})
	}
	return s.b.Op("Squeeze", s.b.Op("MatMul", w, s.b.Op("Unsqueeze", x, []int64{-1})), []int64{-1})
}

func (s gathered) linear(x value, in, out int) value {
	y := s.multiply(x, s.pick(s.stack(in, out)))
	if s.b.style.bias {
		y = s.b.Op("Add", y, s.pick(s.b.weight(s.b.experts, out)))
	}
	return y
}

// rows repeats each token for each of its experts.
func (s gathered) rows() value {
	x := s.b.Op("Expand", s.b.Op("Unsqueeze", s.b.rows, []int64{1}), []int64{1, int64(s.b.k), 1})
	return s.b.Op("Reshape", x, []int64{-1, int64(s.b.hidden)})
}

func (s gathered) factors() value {
	return s.b.Op("Unsqueeze", s.b.Op("Reshape", s.b.scores, []int64{-1}), []int64{-1})
}

// sum adds the rows of each token.
func (s gathered) sum(y value) value {
	y = s.b.Op("Reshape", y, []int64{-1, int64(s.b.k), int64(s.b.hidden)})
	return s.b.Op("ReduceSum", y, []int64{1}, attr("keepdims", 0))
}

// activated returns the first product of rows, activated.
func (s gathered) activated(x value) value {
	b := s.b
	switch {
	case b.style.activation == "gelu":
		return b.unit(s.linear(x, b.hidden, b.inner), nil)
	case b.style.packed != "":
		return b.unit(b.halves(s.linear(x, b.hidden, 2*b.inner)))
	}
	gate := s.linear(x, b.hidden, b.inner)
	return b.unit(gate, s.linear(x, b.hidden, b.inner))
}

func (s gathered) all() value {
	y := s.linear(s.activated(s.rows()), s.b.inner, s.b.hidden)
	return s.sum(s.b.Op("Mul", y, s.factors()))
}

// stackedForms are blocks with stacked weights, and the expected summaries.
var stackedForms = []struct {
	name  string
	build func(b *mixture) value
	want  string
}{
	{"separate", style(expertStyle{}, false, false), "silu halves out_in out_in"},
	{"separate, in_out", style(expertStyle{}, true, true), "silu halves in_out in_out"},
	{"packed", style(expertStyle{packed: "halves"}, true, false), "silu halves out_in out_in"},
	{"packed, biases", style(expertStyle{packed: "halves", bias: true}, false, true),
		"silu halves in_out in_out gate_up_bias down_bias"},
	{"separate, biases", style(expertStyle{bias: true}, false, true),
		"silu halves in_out in_out gate_up_bias down_bias"},
	{"interleaved, clamped", style(expertStyle{packed: "interleaved", activation: "clamped", bias: true}, true, true),
		"silu alpha=1.702 limit=0.75 up_offset=1 interleaved in_out in_out gate_up_bias down_bias"},
	{"up first", style(expertStyle{packed: "up first", bias: true}, false, false),
		"silu halves out_in out_in gate_up_bias down_bias"},
	{"no gate", style(expertStyle{activation: "gelu", bias: true}, true, false),
		"gelu none out_in out_in gate_up_bias down_bias"},
	{"relu", func(b *mixture) value {
		s := gathered{b: b}
		return s.sum(b.Op("Mul", s.linear(b.Op("Relu", s.linear(s.rows(), b.hidden, b.inner)), b.inner, b.hidden),
			s.factors()))
	}, "relu none out_in out_in"},
	{"relu squared", func(b *mixture) value {
		s := gathered{b: b}
		r := b.Op("Relu", s.linear(s.rows(), b.hidden, b.inner))
		return s.sum(b.Op("Mul", s.linear(b.Op("Mul", r, r), b.inner, b.hidden), s.factors()))
	}, "relu2 none out_in out_in"},
	{"relu to the power of two", func(b *mixture) value {
		s := gathered{b: b}
		r := b.Op("Relu", s.linear(s.rows(), b.hidden, b.inner))
		return s.sum(b.Op("Mul", s.linear(b.Op("Pow", r, 2), b.inner, b.hidden), s.factors()))
	}, "relu2 none out_in out_in"},
	{"gated relu squared", func(b *mixture) value {
		s, x := gathered{b: b}, gathered{b: b}.rows()
		r := b.Op("Relu", s.linear(x, b.hidden, b.inner))
		a := b.Op("Mul", b.Op("Mul", r, r), s.linear(x, b.hidden, b.inner))
		return s.sum(b.Op("Mul", s.linear(a, b.inner, b.hidden), s.factors()))
	}, "relu2 halves out_in out_in"},
	{"gated relu", func(b *mixture) value {
		s, x := gathered{b: b}, gathered{b: b}.rows()
		a := b.Op("Mul", b.Op("Relu", s.linear(x, b.hidden, b.inner)), s.linear(x, b.hidden, b.inner))
		return s.sum(b.Op("Mul", s.linear(a, b.inner, b.hidden), s.factors()))
	}, "relu halves out_in out_in"},
	{"clipped by nothing", func(b *mixture) value {
		s, x := gathered{b: b}, gathered{b: b}.rows()
		gate := b.Op("Clip", b.silu(s.linear(x, b.hidden, b.inner)), nil, math.Inf(1))
		up := b.Op("Clip", s.linear(x, b.hidden, b.inner), math.Inf(-1), math.Inf(1))
		return s.sum(b.Op("Mul", s.linear(b.Op("Mul", gate, up), b.inner, b.hidden), s.factors()))
	}, "silu halves out_in out_in"},
	{"weights before the last product", func(b *mixture) value {
		s := gathered{b: b}
		return s.sum(s.linear(b.Op("Mul", s.activated(s.rows()), s.factors()), b.inner, b.hidden))
	}, "silu halves out_in out_in"},
	{"weights before the first product", func(b *mixture) value {
		s := gathered{b: b, inOut: true}
		return s.sum(s.linear(s.activated(b.Op("Mul", s.rows(), s.factors())), b.inner, b.hidden))
	}, "scaled silu halves in_out in_out"},
	{"packed, weights before the first product", func(b *mixture) value {
		s := gathered{b: b, inOut: true}
		b.style.packed = "halves"
		return s.sum(s.linear(s.activated(b.Op("Mul", s.rows(), s.factors())), b.inner, b.hidden))
	}, "scaled silu halves in_out in_out"},
	{"gate and up cut from the weight", func(b *mixture) value {
		s := gathered{b: b}
		w := b.Ops(2, "Split", s.pick(s.stack(b.hidden, 2*b.inner)), attr("axis", 1), attr("num_outputs", 2))
		x := s.rows()
		a := b.unit(s.multiply(x, w[0]), s.multiply(x, w[1]))
		return s.sum(b.Op("Mul", s.linear(a, b.inner, b.hidden), s.factors()))
	}, "silu halves out_in out_in"},
	{"up and gate cut from the weight", func(b *mixture) value {
		s := gathered{b: b, inOut: true}
		w := b.Ops(2, "Split", s.pick(s.stack(b.hidden, 2*b.inner)), attr("axis", 2), attr("num_outputs", 2))
		x := s.rows()
		a := b.unit(s.multiply(x, w[1]), s.multiply(x, w[0]))
		return s.sum(b.Op("Mul", s.linear(a, b.inner, b.hidden), s.factors()))
	}, "silu halves in_out in_out"},
	{"a part of a wider weight", func(b *mixture) value {
		s := gathered{b: b}
		w := b.Op("Slice", s.pick(s.stack(b.hidden, 5*b.inner)), []int64{int64(b.inner)}, []int64{int64(3 * b.inner)},
			[]int64{1})
		b.style.packed = "halves"
		a := b.unit(b.halves(s.multiply(s.rows(), w)))
		return s.sum(b.Op("Mul", s.linear(a, b.inner, b.hidden), s.factors()))
	}, "silu halves out_in out_in"},
	{"one matrix of rows", func(b *mixture) value {
		s := gathered{b: b}
		matrix := func(in, out int) value {
			return b.Op("Reshape", b.weight(b.experts*out, in), []int64{int64(b.experts), int64(out), int64(in)})
		}
		b.style.packed = "halves"
		a := b.unit(b.halves(s.multiply(s.rows(), s.pick(matrix(b.hidden, 2*b.inner)))))
		return s.sum(b.Op("Mul", s.multiply(a, s.pick(matrix(b.inner, b.hidden))), s.factors()))
	}, "silu halves out_in out_in"},
	{"Einsum", func(b *mixture) value {
		pick := func(w value) value { return b.Op("Gather", w, b.ids) }
		b.style.packed = "halves"
		a := b.unit(b.halves(b.einsum("th,tkih->tki", b.rows, pick(b.weight(b.experts, 2*b.inner, b.hidden)))))
		return b.einsum("tki,tkih,tk->th", a, pick(b.weight(b.experts, b.inner, b.hidden)), b.scores)
	}, "silu halves out_in in_out"},
	{"every expert", (*mixture).batched, "silu halves in_out in_out gate_up_bias down_bias"},
	{"every expert, Einsum", func(b *mixture) value { return b.einsums(true) }, "silu halves out_in in_out"},
}

func style(st expertStyle, nd, inOut bool) func(b *mixture) value {
	return func(b *mixture) value {
		b.style = st
		return gathered{b, nd, inOut}.all()
	}
}

// summary describes the op of a match briefly.
func summary(m *patterns.Match) string {
	var s []string
	for _, n := range m.Replacement.Nodes {
		if n.OpType == "Mul" {
			s = append(s, "scaled")
		}
		if n.OpType != m.Op {
			continue
		}
		for _, a := range n.Attributes {
			switch {
			case a.Type == onnx.AttrString:
				s = append(s, a.String)
			case a.Name == "alpha" && a.Float != 1 || a.Name != "alpha" && a.Float != 0:
				s = append(s, fmt.Sprintf("%s=%v", a.Name, a.Float))
			}
		}
		for i, name := range []string{"gate_up_bias", "down_bias"} {
			if n.Input(5+i) != nil {
				s = append(s, name)
			}
		}
	}
	return strings.Join(s, " ")
}

func TestGatheredExperts(t *testing.T) {
	for _, test := range stackedForms {
		for _, k := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d chosen", test.name, k), func(t *testing.T) {
				b := newMixture(7, k)
				m, why := b.read(t, test.build(b))
				if m == nil {
					t.Fatal(why)
				}
				if got := summary(m); got != test.want {
					t.Errorf("found %s, expected %s", got, test.want)
				}
				if strings.HasPrefix(test.want, "scaled") {
					return // the test has no formula for this one
				}
				b.agrees(t, m)
			})
		}
	}
}

func TestGatheredExpertsMissed(t *testing.T) {
	tests := []struct {
		name  string
		build func(s gathered) value
		want  string
	}{
		{"two tensors", func(s gathered) value {
			other := s.b.Op("Reshape", s.b.Model.Graph.AddInput("other", onnx.Type{DataType: onnx.Float, HasShape: true,
				Dims: []onnx.Dim{{Value: -1, Param: "batch"}, {Value: -1, Param: "seq"}, {Value: int64(s.b.hidden)}}}),
				[]int64{-1, int64(s.b.hidden)})
			y := s.linear(s.activated(s.rows()), s.b.inner, s.b.hidden)
			return s.b.Op("Mul",
				s.sum(s.b.Op("Mul", s.b.Op("Mul", y, s.factors()), s.b.Op("Tile", other, []int64{int64(s.b.k), 1}))),
				2.0)
		}, `more than one tensor: "other"`},
		{"another activation", func(s gathered) value {
			a := s.b.Op("Tanh", s.linear(s.rows(), s.b.hidden, s.b.inner))
			return s.sum(s.b.Op("Mul", s.linear(a, s.b.inner, s.b.hidden), s.factors()))
		}, "mojo.MoE does not have the activation"},
		{"no activation", func(s gathered) value {
			return s.sum(s.b.Op("Mul", s.linear(s.linear(s.rows(), s.b.hidden, s.b.inner), s.b.inner, s.b.hidden),
				s.factors()))
		}, "mojo.MoE does not have the activation"},
		{"relu cubed", func(s gathered) value {
			r := s.b.Op("Relu", s.linear(s.rows(), s.b.hidden, s.b.inner))
			return s.sum(s.b.Op("Mul", s.linear(s.b.Op("Mul", s.b.Op("Mul", r, r), r), s.b.inner, s.b.hidden),
				s.factors()))
		}, "mojo.MoE does not have the activation"},
		{"one bias", func(s gathered) value {
			x := s.rows()
			gate := s.linear(x, s.b.hidden, s.b.inner)
			s.b.style.bias = true
			up := s.linear(x, s.b.hidden, s.b.inner)
			return s.sum(s.b.Op("Mul", s.linear(s.b.unit(gate, up), s.b.inner, s.b.hidden), s.factors()))
		}, "one of gate and up of the experts has a bias"},
		{"two layouts", func(s gathered) value {
			x := s.rows()
			gate := s.linear(x, s.b.hidden, s.b.inner)
			s.inOut = true
			return s.sum(s.b.Op("Mul", s.linear(s.b.unit(gate, s.linear(x, s.b.hidden, s.b.inner)), s.b.inner,
				s.b.hidden), s.factors()))
		}, "different layouts"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newMixture(7, 2)
			m, why := b.read(t, test.build(gathered{b: b}))
			if m != nil || !strings.Contains(why, test.want) {
				t.Fatalf("match %v, %q, expected %q", m != nil, why, test.want)
			}
		})
	}
}
