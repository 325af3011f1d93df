package streams

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// fused adds the equations of a fused op in a patched model.
func (b *builder) fused(n *onnx.Node) {
	x, y := b.in(n, 0), b.out(n, 0)
	switch n.OpType {
	case fused.RMSNormName, fused.NormRotaryName:
		b.norm(n, x, 0)
		b.same(b.in(n, 1), y)
	case fused.AddRMSNormName:
		b.norm(n, x, 0)
		b.same(x, b.in(n, 1), b.out(n, 1))
		b.same(b.in(n, 2), y)
	case fused.GatedRMSNormName:
		b.norm(n, x, 0)
		b.same(b.in(n, 2), y)
	case fused.AddLayerNormName:
		b.norm(n, x, 0)
		b.same(x, b.in(n, 1), b.in(n, 4), b.out(n, 1))
		b.same(b.in(n, 2), b.in(n, 3), y)
	case fused.RotaryEmbeddingName:
		b.same(x, y)
	case fused.GLUName:
		b.product(y, b.activated(n, fused.Read[fused.GLU](n.Attributes), x), b.in(n, 1))
	case fused.AttentionName: // the scores do not grow
		b.pin(x, n)
		b.same(b.in(n, fused.AttentionV), b.in(n, fused.AttentionPastValue), y, b.out(n, 2))
	case fused.LinearName:
		b.product(y, x, b.weights(n, []int{2, 3, 4, 5}))
		b.same(b.in(n, 6), y)
	case fused.EmbeddingName:
		b.same(b.weights(n, []int{2, 3, 4, 5}), y)
	case fused.MoEName:
		a := fused.Read[fused.MoE](n.Attributes)
		b.experts(n, a.Packing == "none" && a.Activation == "relu", b.in(n, fused.MoEGateUp), b.in(n, fused.MoEDown),
			b.in(n, fused.MoEDownBias), b.in(n, fused.MoEGateUpBias))
	case fused.QMoEName:
		a, up, down := fused.Read[fused.QMoE](n.Attributes), fused.QMoEGateUp, fused.QMoEDown
		b.experts(n, a.Packing == "none" && a.Activation == "relu", b.weights(n, up[1:]), b.weights(n, down[1:]),
			b.in(n, down[5]), b.in(n, up[5]))
	default:
		b.pinAll(n)
	}
}

// activated returns the exponent of an activated gate: the gate's if the activation is homogeneous, otherwise no
// exponent, and the gate does not grow.
func (b *builder) activated(n *onnx.Node, a fused.GLU, gate int) int {
	switch {
	case a.Limit != 0 || a.UpOffset != 0: // up does not grow either
		b.pin(b.in(n, 1), n)
	case a.Activation == "relu":
		return gate
	}
	b.pin(gate, n)
	return none
}

// experts adds the equations of experts with two products, whose matrices have the exponents up and down. The weights
// of the experts depend on the logits, which do not grow: the matrix that computes them can take the inverse.
func (b *builder) experts(n *onnx.Node, homogeneous bool, up, down, bias int, biases ...int) {
	y, inner := b.out(n, 0), b.add(false)
	b.product(inner, b.in(n, 0), up)
	b.same(append(biases, inner)...)
	if !homogeneous {
		b.pin(inner, n)
	}
	b.product(y, inner, down)
	b.same(y, bias)
}

// weights returns the exponent of quantized weights with the inputs scale, minus, super_scale and super_minus. The
// scales and offsets of their blocks take it, or in twofold formats the scales of 256 columns.
func (b *builder) weights(n *onnx.Node, at []int) int {
	if n.Input(at[2]) != nil {
		at = at[2:]
	} else {
		for _, i := range at[:2] {
			if t := n.Input(i).Constant(); t != nil && t.DataType == onnx.Float16 {
				b.widens[onnx.Use{Node: n, Index: i}] = true
			}
		}
	}
	x, v := b.in(n, at[0]), n.Input(at[0])
	if t := v.Constant(); t != nil && t.DataType == onnx.Uint8 {
		x = b.read(n, at[0], v) // powers of two
	}
	b.same(x, b.in(n, at[1]))
	return x
}
