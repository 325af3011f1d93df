package moe_test

import (
	"math/rand/v2"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// mixture builds a model with one mixture of experts.
type mixture struct {
	*onnxtest.Builder
	r                    *rand.Rand
	experts, k           int
	hidden, inner        int
	x, rows, ids, scores value // [batch, seq, hidden], [tokens, hidden], [tokens, k] twice
	base                 func() value
	style                expertStyle
	inBodies             bool // weights are Constant nodes of the graph that reads them
}

// expertStyle is the way to write one expert.
type expertStyle struct {
	weights    string // "in_out" (the default), "gemm", "transposed", "left"
	activation string // "silu" (the default), "gelu" and "sine" without a gate, "clamped"
	packed     string // "", "halves", "interleaved", "up first"
	bias       bool
}

func newMixture(experts, k int) *mixture {
	b := &mixture{Builder: onnxtest.New(20), r: rand.New(rand.NewPCG(1, 2)), experts: experts, k: k, hidden: 16,
		inner: 6}
	b.x = b.Input("x", onnx.Float, "batch", "seq", b.hidden)
	b.route(b.Op("Reshape", b.x, []int64{-1, int64(b.hidden)}))
	return b
}

// route makes the next experts read rows, and routes these.
func (b *mixture) route(rows value) {
	b.rows = rows
	chosen := b.Ops(2, "TopK", b.Op("Softmax", b.Op("MatMul", rows, b.weight(b.hidden, b.experts)), attr("axis", -1)),
		[]int64{int64(b.k)})
	b.scores, b.ids = b.Op("Div", chosen[0], b.Op("ReduceSum", chosen[0], []int64{-1})), chosen[1]
}

func (b *mixture) weight(dims ...int) value {
	long := make([]int64, len(dims))
	for i, d := range dims {
		long[i] = int64(d)
	}
	v := make([]float32, match.Elements(dims))
	for i := range v {
		v[i] = float32(b.r.NormFloat64()) / 2
	}
	t := onnx.NewFloat32s("w", long, v)
	if b.inBodies {
		return b.Op("Constant", onnx.TensorAttr("value", t))
	}
	return b.Model.Graph.AddInitializer(t)
}

func attr(name string, v int64) *onnx.Attribute { return onnx.IntAttr(name, v) }

// linear multiplies rows with a new weight, in the style.
func (b *mixture) linear(x value, in, out int) value {
	var y value
	switch b.style.weights {
	case "gemm":
		if b.style.bias {
			return b.Op("Gemm", x, b.weight(out, in), b.weight(out), attr("transB", 1))
		}
		return b.Op("Gemm", x, b.weight(out, in), attr("transB", 1))
	case "transposed":
		y = b.Op("MatMul", x, b.Op("Transpose", b.weight(out, in), onnx.IntsAttr("perm", []int64{1, 0})))
	case "left":
		y = b.Op("Transpose", b.Op("MatMul", b.weight(out, in), b.Op("Transpose", x)))
	default:
		y = b.Op("MatMul", x, b.weight(in, out))
	}
	if b.style.bias {
		y = b.Op("Add", b.weight(out), y)
	}
	return y
}

func (b *mixture) silu(x value) value { return b.Op("Mul", x, b.Op("Sigmoid", x)) }

// unit returns the nodes between the products; up is nil without a gate.
func (b *mixture) unit(gate, up value) value {
	switch b.style.activation {
	case "gelu":
		return b.Op("Gelu", gate)
	case "sine": // not an activation of mojo.MoE
		return b.Op("Sin", gate)
	case "clamped":
		gate, up = b.Op("Clip", gate, nil, 0.75), b.Op("Clip", up, -0.75, 0.75)
		return b.Op("Mul", b.Op("Add", up, 1.0), b.Op("Mul", gate, b.Op("Sigmoid", b.Op("Mul", gate, 1.702))))
	}
	return b.Op("Mul", b.silu(gate), up)
}

// halves splits a packed product.
func (b *mixture) halves(h value) (gate, up value) {
	cut := func(from, step int) value {
		return b.Op("Slice", h, []int64{int64(from)}, []int64{int64(from + (b.inner-1)*step + 1)}, []int64{-1},
			[]int64{int64(step)})
	}
	switch b.style.packed {
	case "interleaved":
		return cut(0, 2), cut(1, 2)
	case "up first":
		return cut(b.inner, 1), cut(0, 1)
	}
	return cut(0, 1), cut(b.inner, 1)
}

// expert sends rows through a new expert.
func (b *mixture) expert(x value) value {
	var a value
	switch {
	case b.style.activation == "gelu":
		a = b.unit(b.linear(x, b.hidden, b.inner), nil)
	case b.style.packed != "":
		a = b.unit(b.halves(b.linear(x, b.hidden, 2*b.inner)))
	default:
		gate := b.linear(x, b.hidden, b.inner)
		a = b.unit(gate, b.linear(x, b.hidden, b.inner))
	}
	return b.linear(a, b.inner, b.hidden)
}

// gate returns the factor of expert e for every token, [tokens, 1].
func (b *mixture) gate(e any) value {
	hit := b.Op("Cast", b.Op("Equal", b.ids, e), attr("to", 1))
	return b.Op("ReduceSum", b.Op("Mul", hit, b.scores), []int64{-1})
}

// sum adds the results of of for every expert.
func (b *mixture) sum(of func(e int) value) value {
	var y value
	for e := range b.experts {
		if v := of(e); v == nil {
		} else if y == nil {
			y = v
		} else {
			y = b.Op("Add", y, v)
		}
	}
	return y
}
