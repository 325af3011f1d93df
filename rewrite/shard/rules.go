package shard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// A rule makes a node compute parts, given the layout of one of its values. It determines the layouts of all others.
type rule func(b *block, n *onnx.Node) error

func ruleOf(n *onnx.Node) rule {
	switch {
	case n.Domain == fused.Domain:
		return fusedRules[n.OpType]
	case !onnx.IsStandardDomain(n.Domain):
		return nil
	}
	if r := standardRules[n.OpType]; r != nil {
		return r
	}
	if slices.Contains(elementwise, n.OpType) {
		return broadcast
	}
	return nil
}

// elementwise are the ops whose outputs depend only on the same elements of their inputs.
var elementwise = []string{"Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf",
	"Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
	"LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow",
	"Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum",
	"Swish", "Tanh", "ThresholdedRelu", "Where", "Xor"}

var standardRules map[string]rule

func init() { // the rules call ruleOf through block.visit
	standardRules = map[string]rule{
		"Reshape": reshape, "Flatten": reshape, "Unsqueeze": reshape, "Squeeze": reshape,
		"Transpose": transpose, "Concat": concat, "Split": split, "Slice": sliceRule, "Gather": gather,
		"Expand": expand, "MatMul": matMul, "Gemm": gemm, "Shape": shape,
		"Softmax": within(1, 1), "LogSoftmax": within(1, 1), "LayerNormalization": within(1, 1),
		"RMSNormalization": within(1, 1),
		"ReduceMean":       reduce, "ReduceSum": reduce, "ReduceMax": reduce, "ReduceMin": reduce, "ReduceL2": reduce,
		"ReduceSumSquare": reduce, "CumSum": cumSum,
	}
}

// broadcast is the rule of ops that compute element by element, with broadcasting.
func broadcast(b *block, n *onnx.Node) error { return b.aligned(n, n.Inputs, n.Outputs[:1]) }

// aligned gives values of a node the same layout, by axes counted from the last. Values that are broadcast along the
// axis stay whole.
func (b *block) aligned(n *onnx.Node, inputs, outputs []*onnx.Value) error {
	l, output, index := b.known(n)
	if index < 0 {
		return errors.New("nothing of it is divided")
	}
	values := n.Inputs
	if output {
		values = n.Outputs
	}
	v := values[index]
	r, err := b.rank(v)
	if err != nil {
		return err
	}
	back := l.Axis - r // from the end
	for i, v := range inputs {
		if v == nil {
			continue
		}
		r, err := b.rank(v)
		if err != nil {
			return err
		}
		size, ok := b.size(v, max(back+r, 0))
		switch {
		case back+r < 0 || ok && size == 1:
			err = b.whole(n, i)
		case !ok:
			err = fmt.Errorf("axis %d of %q has no fixed size", back+r, v.Name)
		default:
			err = b.take(n, i, l.at(back+r))
		}
		if err != nil {
			return err
		}
	}
	for _, v := range outputs {
		if v == nil {
			continue
		}
		r, err := b.rank(v)
		if err == nil {
			err = b.hold(v, l.at(back+r))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// through divides the first input and the first output of a node.
func (b *block) through(n *onnx.Node, in, out Layout) error {
	if err := b.take(n, 0, in); err != nil {
		return err
	}
	return b.hold(n.Outputs[0], out)
}

// within is the rule of ops that compute along an axis, the last one by default, and all later ones, which must stay
// whole. So many first inputs and outputs have the same shape. Other inputs are as long as the axis, and other outputs
// are not read.
func within(inputs, outputs int) rule {
	return func(b *block, n *onnx.Node) error {
		l, _, _ := b.known(n)
		r, err := b.rank(n.Inputs[0])
		if err != nil {
			return err
		}
		if l.Axis >= axisOf(n, r, -1) {
			return fmt.Errorf("it computes along axis %d, which is divided", l.Axis)
		}
		return b.aligned(n, n.Inputs[:inputs], n.Outputs[:min(outputs, len(n.Outputs))])
	}
}

func cumSum(b *block, n *onnx.Node) error {
	l, _, _ := b.known(n)
	axis, ok := b.facts.Constant(n.Input(1))
	r, err := b.rank(n.Inputs[0])
	if err != nil || !ok || len(axis.I) != 1 {
		return errors.New("its axis is not known")
	}
	if int(axis.I[0]) == l.Axis || int(axis.I[0])+r == l.Axis {
		return fmt.Errorf("it sums along axis %d, which is divided", l.Axis)
	}
	return b.aligned(n, n.Inputs[:1], n.Outputs[:1])
}

// reduce keeps the axes that it does not sum over.
func reduce(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	axes := n.AttrInts("axes")
	if v := n.Input(1); v != nil {
		c, ok := b.facts.Constant(v)
		if !ok {
			return errors.New("its axes are not known")
		}
		axes = c.I
	}
	r, err := b.rank(n.Inputs[0])
	if err != nil || len(axes) == 0 {
		return errors.New("it reduces all axes")
	}
	var kept []int // axes of the input, in the order of the output's
	keep := n.AttrInt("keepdims", 1) == 1
	reduced := func(axis int) bool {
		return slices.Contains(axes, int64(axis)) || slices.Contains(axes, int64(axis-r))
	}
	for axis := range r {
		if keep || !reduced(axis) {
			kept = append(kept, axis)
		}
	}
	in := l.Axis
	if output {
		in = kept[l.Axis]
	}
	if reduced(in) {
		return fmt.Errorf("it reduces axis %d, which is divided", in)
	}
	return b.through(n, l.at(in), l.at(slices.Index(kept, in)))
}

func transpose(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	perm := n.AttrInts("perm")
	if perm == nil {
		r, err := b.rank(n.Inputs[0])
		if err != nil {
			return err
		}
		for axis := range r {
			perm = append(perm, int64(r-1-axis))
		}
	}
	in := l.Axis
	if output {
		in = int(perm[l.Axis])
	}
	return b.through(n, l.at(in), l.at(slices.Index(perm, int64(in))))
}

// reshape finds the axis of the other shape that begins at the same element. Pieces become larger or smaller by the
// axes that are joined or separated.
func reshape(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	from, to := n.Inputs[0], n.Outputs[0]
	if output {
		from, to = to, from
	}
	other, err := b.reshaped(from, to, l)
	if err != nil {
		return err
	}
	in, out := l, other
	if output {
		in, out = other, l
	}
	if n.Is("Reshape") {
		if err := b.divide(n, 1, out.Axis, l); err != nil {
			return err
		}
	}
	return b.through(n, in, out)
}

// reshaped returns the layout of a value that has the elements of another in another shape. An axis that is joined to
// earlier ones has pieces, such as the heads of [queries, keys, values] in one axis. Equal pieces become an axis.
func (b *block) reshaped(from, to *onnx.Value, l Layout) (Layout, error) {
	axis, pieces := -1, int64(1)
	var size, wide, next int64
	for world := range 2 {
		a, ok := b.facts.Shape(from, world)
		c, known := b.facts.Shape(to, world)
		if !ok || !known {
			return l, errors.New("its shapes are not known")
		}
		size = a[l.Axis]
		at, joined := begins(c, match.Elements(a[:l.Axis]), size), int64(1)
		for first := l.Axis - 1; at < 0 && l.Runs == nil && first >= 0; first-- {
			joined *= a[first]
			if at = begins(c, match.Elements(a[:first]), 0); at >= 0 && c[at]%(joined*size) != 0 {
				at = -1
			}
		}
		if at < 0 || world > 0 && (at != axis || joined != pieces) {
			return l, fmt.Errorf("axis %d of %v does not begin in %v", l.Axis, a, c)
		}
		axis, pieces, wide, next = at, joined, c[at], 0
		if at+1 < len(c) {
			next = c[at+1]
		}
	}
	out, err := l.at(axis), error(nil)
	switch {
	case pieces > 1:
		out.Runs = slices.Repeat([]int64{wide / pieces}, int(pieces))
	case l.alike() == wide && next > 1:
		out = l.single().at(axis + 1)
	case wide < size && size%wide == 0: // separated: every element of the axis stands for size/wide
		out, err = out.scaled(1, size/wide)
	case wide > size && wide%size == 0:
		out, err = out.scaled(wide/size, 1)
	case wide != size:
		err = fmt.Errorf("an axis of %d becomes one of %d", size, wide)
	}
	return out, err
}

// begins returns the axis of a shape that begins behind so many elements, or -1. An axis of 1 is only found for a size
// of 1.
func begins(shape []int64, before, size int64) int {
	for i, n := range shape {
		if match.Elements(shape[:i]) == before && (n != 1 || size == 1) {
			return i
		}
	}
	return -1
}

func axisOf(n *onnx.Node, rank int, def int64) int {
	axis := n.AttrInt("axis", def)
	if axis < 0 {
		axis += int64(rank)
	}
	return int(axis)
}

// gather keeps the axes that it does not index.
func gather(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	r, err := b.rank(n.Inputs[0])
	if err != nil {
		return err
	}
	indices, err := b.rank(n.Inputs[1])
	if err != nil {
		return err
	}
	axis, in := axisOf(n, r, 0), l.Axis
	switch {
	case output && l.Axis >= axis && l.Axis < axis+indices:
		return errors.New("its indices are divided")
	case output && l.Axis >= axis+indices:
		in = l.Axis - indices + 1
	}
	if in == axis {
		return fmt.Errorf("it indexes axis %d, which is divided", axis)
	}
	out := in
	if in > axis {
		out = in + indices - 1
	}
	if err := b.whole(n, 1); err != nil {
		return err
	}
	return b.through(n, l.at(in), l.at(out))
}

func expand(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	out, err := b.rank(n.Outputs[0])
	if err != nil {
		return err
	}
	in, err := b.rank(n.Inputs[0])
	if err != nil {
		return err
	}
	axis := l.Axis
	if !output {
		axis += out - in
	}
	target, ok := b.facts.Known(n.Input(1), 0)
	if !ok {
		return errors.New("its shape is not known")
	}
	if place := axis - out + len(target.I); place >= 0 {
		if target.I[place] != 1 {
			if err := b.divide(n, 1, place, l); err != nil {
				return err
			}
		}
	}
	return b.aligned(n, n.Inputs[:1], n.Outputs[:1])
}

// shape makes the shape of a held value that of the whole.
func shape(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	if output {
		return errors.New("a shape is divided")
	}
	r, err := b.rank(n.Inputs[0])
	if err != nil {
		return err
	}
	start, end := n.AttrInt("start", 0), n.AttrInt("end", int64(r))
	if start < 0 {
		start += int64(r)
	}
	if end < 0 {
		end += int64(r)
	}
	start, end = min(max(start, 0), int64(r)), min(max(end, 0), int64(r))
	if axis := int64(l.Axis); axis >= start && axis < end {
		if l.Pieces != nil {
			return errors.New("pieces of its input are divided in different ways")
		}
		b.shapes[n] = dimension{l.Axis - int(start), int(end - start), l}
	}
	return nil
}
