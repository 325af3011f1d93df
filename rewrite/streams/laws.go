package streams

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// The law of an op relates the growth of its outputs to that of its inputs: all of them can be multiplied by certain
// powers of 2 so that the node still computes the same function. Each law holds exactly for powers of two, except for
// numbers that leave the range of their type. A node without a law does not change: the exponents of its inputs and
// outputs stay 0.

var (
	// alike are the ops whose float inputs and outputs grow together: they move elements, compare, add, or are linear
	// for positive factors.
	alike = onnx.Words(`
		Abs Add Compress Concat CumSum DepthToSpace Expand Flatten Gather GatherElements GatherND GlobalAveragePool
		GlobalMaxPool Identity LeakyRelu Max Mean Min Neg Relu Reshape ReverseSequence Slice SpaceToDepth Split Squeeze
		Sub Sum Tile Transpose Trilu Unsqueeze Where ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum
	`)
	// first are the ops whose first input and first output grow together, and whose other inputs are slopes or rotary
	// tables.
	first = onnx.Words(`AveragePool Dropout MaxPool PRelu RotaryEmbedding TopK`)
	// choices are the ops whose outputs do not change if all float inputs grow together.
	choices = onnx.Words(`ArgMax ArgMin Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual NonZero Shape Sign
		Size`)
)

// law adds the equations of a node.
func (b *builder) law(n *onnx.Node) {
	switch {
	case len(n.Subgraphs()) > 0:
		b.borders(n)
	case n.Domain == "com.microsoft":
		b.microsoft(n)
	case n.Domain == fused.Domain:
		b.fused(n)
	case !onnx.IsStandardDomain(n.Domain):
		b.pinAll(n)
	case alike[n.OpType]:
		b.same(append(b.inputs(n), b.outputs(n)...)...)
	case first[n.OpType]:
		b.same(b.in(n, 0), b.out(n, 0))
	case choices[n.OpType]:
		b.same(b.inputs(n)...)
		for i := range n.Outputs {
			b.pin(b.out(n, i), n)
		}
	default:
		b.standard(n)
	}
}

// borders adds the equations of a node with graphs: a number grows alike inside and outside.
func (b *builder) borders(n *onnx.Node) {
	list := n.Borders()
	for _, x := range list {
		all := []int{b.in(n, x.Input), b.out(n, x.Output)}
		for _, v := range x.Inner {
			if !b.isFloat(v) {
				continue
			}
			if t := v.Constant(); t != nil && isZero(t) {
				continue
			} else if t != nil {
				b.pin(b.of(v), n)
			}
			all = append(all, b.of(v))
		}
		b.same(all...)
	}
	for _, g := range n.Subgraphs() {
		for _, v := range slices.Concat(g.Inputs, g.Outputs) {
			if list == nil && b.isFloat(v) {
				b.pin(b.of(v), n)
			}
		}
	}
}

// standard adds the equations of the other ops of the standard.
func (b *builder) standard(n *onnx.Node) {
	x, y := b.in(n, 0), b.out(n, 0)
	switch n.OpType {
	case "Cast":
		if x != none && y != none {
			b.same(x, y)
		} else {
			b.pinAll(n)
		}
	case "CastLike":
		b.same(x, y)
		b.in(n, 1) // only its type is read
	case "Clip":
		b.same(x, b.in(n, 1), b.in(n, 2), y)
		if n.Attr("min") != nil || n.Attr("max") != nil {
			b.pin(x, n)
		}
	case "Pad":
		b.same(x, b.in(n, 2), y)
	case "ScatterElements", "ScatterND":
		b.same(x, b.in(n, 2), y)
		if n.AttrString("reduction", "none") == "mul" {
			b.pin(x, n)
		}
	case "ConstantOfShape":
		if a := n.Attr("value"); a != nil && a.Tensor != nil && !isZero(a.Tensor) {
			b.pin(y, n)
		}
	case "Mul", "MatMul", "Einsum":
		b.product(y, b.inputs(n)...)
	case "Gemm", "Conv", "ConvTranspose":
		b.product(y, x, b.in(n, 1))
		b.same(b.in(n, 2), y)
	case "Div":
		b.product(x, y, b.in(n, 1))
	case "Reciprocal":
		b.product(none, x, y)
	case "Sqrt":
		b.product(x, y, y)
	case "ReduceSumSquare":
		b.product(y, x, x)
	case "Pow":
		b.power(n, x, y)
	case "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization":
		b.norm(n, x, 1e-5)
		b.same(b.in(n, 1), b.in(n, 2), y)
		deviation := b.out(n, 1)
		if n.OpType == "LayerNormalization" {
			b.same(x, b.out(n, 1)) // the mean
			deviation = b.out(n, 2)
		}
		if deviation != none { // its inverse
			b.product(none, x, deviation)
		}
	case "InstanceNormalization":
		b.norm(n, x, 1e-5)
		b.same(b.in(n, 1), b.in(n, 2), y)
	case "LpNormalization":
		b.pin(y, n)
	case "DequantizeLinear":
		b.same(b.in(n, 1), y)
	default:
		b.pinAll(n)
	}
}

// microsoft adds the equations of onnxruntime's ops outside the standard.
func (b *builder) microsoft(n *onnx.Node) {
	x, y := b.in(n, 0), b.out(n, 0)
	switch n.OpType {
	case "SkipSimplifiedLayerNormalization", "SkipLayerNormalization":
		after := 3 // the bias of the sum
		if n.OpType == "SkipLayerNormalization" {
			after = 4
			b.same(b.in(n, 3), y)
		}
		b.norm(n, x, 1e-12)
		b.same(b.in(n, 2), y)
		b.same(x, b.in(n, 1), b.in(n, after), b.out(n, 3))
		b.pin(b.out(n, 1), n)
		b.pin(b.out(n, 2), n)
	case "MatMulNBits":
		b.product(y, x, b.in(n, 2))
		b.same(b.in(n, 5), y)
	case "GatherBlockQuantized":
		b.same(b.in(n, 2), y)
	case "RotaryEmbedding":
		b.same(x, y)
	case "MoE":
		b.microsoftExperts(n, 2, 4, 6)
	case "QMoE":
		b.microsoftExperts(n, 3, 6, 9) // the scales grow instead of the elements
	default:
		b.pinAll(n)
	}
}

// microsoftExperts adds the equations of experts whose inputs fc1, fc2 and fc3 scale the products. The bias of each is
// the next input.
func (b *builder) microsoftExperts(n *onnx.Node, fc1, fc2, fc3 int) {
	a := n.AttrString("activation_type", "relu")
	b.same(b.in(n, fc1), b.in(n, fc3))
	b.experts(n, a == "relu" || a == "identity", b.in(n, fc1), b.in(n, fc2), b.in(n, fc2+1), b.in(n, fc1+1),
		b.in(n, fc3+1))
}

// power adds the equation of a power with a constant exponent.
func (b *builder) power(n *onnx.Node, x, y int) {
	t := n.Input(1).Constant()
	if t == nil || t.Len() != 1 {
		b.pinAll(n)
		return
	}
	e, err := golden.Float64s(t)
	switch {
	case err != nil:
		b.pinAll(n)
	case e[0] == math.Trunc(e[0]) && math.Abs(e[0]) <= 4:
		b.equate(sum{x: int(e[0])}, sum{y: 1})
	case e[0] == 0.5 || e[0] == -0.5:
		b.equate(sum{x: 1}, sum{y: int(4 * e[0])})
	default:
		b.pinAll(n)
	}
}

// norm records the epsilon of a norm, which grows with the square of its input.
func (b *builder) norm(n *onnx.Node, x int, epsilon float32) {
	if x != none {
		b.epsilons = append(b.epsilons, epsilonOf{n, x, n.AttrFloat("epsilon", epsilon)})
	}
}

// product adds the equation that y grows as the product of others.
func (b *builder) product(y int, others ...int) {
	t := sum{}
	for _, v := range others {
		if v != none {
			t[v]++
			if y != none {
				b.link(y, v)
			}
		}
	}
	if y == none {
		b.equate(t, nil)
		return
	}
	b.equate(t, sum{y: 1})
}

// same adds the equations that exponents are equal.
func (b *builder) same(list ...int) {
	list = slices.DeleteFunc(list, func(v int) bool { return v == none })
	for i := 1; i < len(list); i++ {
		b.equate(sum{list[i]: 1}, sum{list[0]: 1})
		b.link(list[0], list[i])
	}
}

func (b *builder) pinAll(n *onnx.Node) {
	for _, v := range append(b.inputs(n), b.outputs(n)...) {
		b.pin(v, n)
	}
}
