package convert

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// multipliesRows reports whether the node multiplies rows by constant weights. flat means that the rows have two axes
// there.
func (c *logitsCut) multipliesRows(n *onnx.Node, flat bool) bool {
	rank, ok := c.facts.Rank(n.Input(0))
	if !ok || flat != (rank == 2) || !flat && rank != 3 || c.fixed(n.Input(0)) {
		return false
	}
	for _, v := range n.Inputs[1:] {
		if v != nil && !c.fixed(v) {
			return false
		}
	}
	switch {
	case n.Is("MatMul"):
		w, ok := c.facts.Rank(n.Input(1))
		return ok && w == 2
	case n.Is("Gemm"):
		return n.AttrInt("transA", 0) == 0 && (n.Input(2) == nil || c.forAllRows(n.Input(2), 2, 0))
	case n.Domain == onnx.Microsoft && n.OpType == "FusedMatMul":
		return n.AttrInt("transA", 0) == 0 && n.AttrInt("transBatchA", 0) == 0 && n.AttrInt("transBatchB", 0) == 0
	case n.Domain == onnx.Microsoft && n.OpType == "MatMulNBits",
		n.Domain == fused.Domain && n.OpType == fused.LinearName:
		return true
	}
	return false
}

// fixed reports whether a value is computed only from constants.
func (c *logitsCut) fixed(v *onnx.Value) bool {
	if known, ok := c.constants[v]; ok {
		return known
	}
	c.constants[v] = false // ends the recursion in a loop, which cannot be constant
	n := v.Producer
	is := v.IsConstant()
	if n != nil && onnx.IsStandardDomain(n.Domain) && len(n.Subgraphs()) == 0 && !n.IsRandom() {
		is = !slices.ContainsFunc(n.Inputs, func(x *onnx.Value) bool { return x != nil && !c.fixed(x) })
	}
	c.constants[v] = is
	return is
}

// forAllRows reports whether a value has the same elements for all positions, as an operand next to rows with the given
// rank whose positions are along axis.
func (c *logitsCut) forAllRows(v *onnx.Value, rank, axis int) bool {
	r, ok := c.facts.Rank(v)
	if !ok || r > rank {
		return false
	}
	if axis -= rank - r; axis < 0 {
		return true
	}
	d, ok := c.facts.Dim(v, axis)
	return ok && d == 1
}

// rowwise are the ops with one input that treat each element by itself.
var rowwise = onnx.Words(`
	Abs Cast Clip Dropout Elu Erf Exp Gelu HardSigmoid HardSwish Identity LeakyRelu Log Mish Neg Reciprocal Relu
	Selu Sigmoid Softplus Softsign Sqrt Swish Tanh ThresholdedRelu
`)

// beside are the ops that combine elements of several inputs.
var beside = onnx.Words("Add Div Max Min Mul PRelu Pow Sub Where")

// step returns the input of a node that holds the rows, for an op that treats each position by itself.
func (c *logitsCut) step(n *onnx.Node, p *logitsPath) (int, error) {
	if !onnx.IsStandardDomain(n.Domain) {
		if c.model.Function(n.Domain, n.OpType, n.Overload) != nil {
			return 0, errors.New("calls a function: inline it first (apply --inline all)")
		}
		return 0, errors.New("is not known to treat each position by itself")
	}
	at := 0
	out := n.OutputValue(0)
	rank, _ := c.facts.Rank(out)
	axis := rank - 2
	switch {
	case n.Is("Reshape"):
		return 0, c.reshape(n, p)
	case rowwise[n.OpType]:
	case beside[n.OpType]:
		var rows []int
		for i, v := range n.Inputs {
			if v != nil && !c.fixed(v) {
				rows = append(rows, i)
			}
		}
		if len(rows) != 1 || n.Is("Where") && rows[0] == 0 {
			return 0, errors.New("does not have exactly one computed input")
		}
		at = rows[0]
		for i, v := range n.Inputs {
			if i != at && v != nil && !c.forAllRows(v, rank, axis) {
				return 0, fmt.Errorf("has the input %q, which is not the same for all positions", v.Name)
			}
		}
	case n.Is("Softmax"), n.Is("LogSoftmax"):
		if a := n.AttrInt("axis", -1); a != -1 && a != int64(rank-1) {
			return 0, errors.New("is not over the vocabulary")
		}
	case n.Is("Slice"):
		axes, ok := c.facts.Constant(n.Input(3))
		if !ok || len(axes.I) != 1 || axes.I[0] != -1 && axes.I[0] != int64(rank-1) || !c.fixed(n.Input(1)) ||
			!c.fixed(n.Input(2)) {
			return 0, errors.New("takes a part of another axis than the vocabulary's")
		}
	default:
		return 0, errors.New("is not known to treat each position by itself")
	}
	in, ok := c.facts.Rank(n.Input(at))
	if !ok || in != rank || !n.Is("Slice") && !c.facts.SameShape(n.Input(at), out) {
		return 0, fmt.Errorf("returns another shape than its input %q has", n.Input(at).Name)
	}
	return at, nil
}

// reshape accepts a Reshape from [batch*sequence, …] to [batch, sequence, …].
func (c *logitsCut) reshape(n *onnx.Node, p *logitsPath) error {
	for w := range infer.Worlds {
		in, ok1 := c.facts.Shape(n.Input(0), w)
		out, ok2 := c.facts.Shape(n.OutputValue(0), w)
		if !ok1 || !ok2 || p.split >= 0 || len(in) != 2 || len(out) != 3 || in[1] != out[2] || in[0] != out[0]*out[1] {
			return errors.New("does not reshape [batch*sequence, vocabulary] to [batch, sequence, vocabulary]")
		}
	}
	p.split = len(p.nodes)
	return nil
}
