package shorten

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// elementwise are the ops whose elements are functions of the elements of the inputs that are broadcast to their place.
var elementwise = []string{"Abs", "Add", "And", "Cast", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp",
	"Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu",
	"Less", "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Sigmoid",
	"Sign", "Sin", "Softplus", "Sqrt", "Sub", "Sum", "Swish", "Tanh", "Where", "Xor"}

var errTokens = errors.New("it reads tokens by index")

// node finds the dimensions of a node's result.
func (r *reader) node(n *onnx.Node) error {
	if !onnx.IsStandardDomain(n.Domain) || len(n.Subgraphs()) > 0 {
		return errOther
	}
	if !slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool {
		return v != nil && (r.thin[v] || slices.ContainsFunc(r.dims[v], Dim.changes))
	}) {
		if n.Is("Expand") {
			return r.thinned(n)
		}
		return nil // the result does not depend on lengths
	}
	if !slices.Contains(elementwise, n.OpType) && slices.ContainsFunc(n.Inputs, r.isThin) {
		return errOther
	}
	var out []Dim
	var err error
	switch {
	case slices.Contains(elementwise, n.OpType):
		out, err = r.broadcast(n.Inputs)
	case n.Is("Softmax") || n.Is("LogSoftmax"):
		out, err = r.softmax(n)
	case n.Is("MatMul"):
		out, err = r.matMul(n)
	case n.Is("Transpose"):
		out, err = r.transpose(n)
	case n.Is("Reshape"), n.Is("Flatten"), n.Is("Squeeze"), n.Is("Unsqueeze"):
		out, err = r.reshape(n)
	case n.Is("Expand"):
		out, err = r.expand(n)
	default:
		return errOther
	}
	if err != nil {
		return err
	}
	if len(n.Outputs) != 1 || n.Outputs[0] == nil {
		return errOther
	}
	return r.set(n.Outputs[0], out, slices.ContainsFunc(n.Inputs, r.isThin))
}

// set records the dimensions of a result. They must agree with its shape, except that it may be thin.
func (r *reader) set(v *onnx.Value, dims []Dim, mayBeThin bool) error {
	shape, err := r.shape(v)
	if err != nil {
		return err
	}
	got := sizesAsExported(dims)
	if len(got) != len(shape) {
		return fmt.Errorf("its result has the shape %v instead of %v", shape, got)
	}
	for i, d := range got {
		if d != shape[i] && !(mayBeThin && d == 1) {
			return fmt.Errorf("its result has the shape %v instead of %v", shape, got)
		}
		r.thin[v] = r.thin[v] || d != shape[i]
	}
	r.dims[v] = dims
	return nil
}

func (r *reader) isThin(v *onnx.Value) bool { return r.thin[v] || r.constants[v] != nil }

// thinned skips an expansion of a value that does not depend on the tokens.
func (r *reader) thinned(n *onnx.Node) error {
	dims, err := r.of(n.Input(0))
	if err != nil {
		return err
	}
	shape, err := r.shape(n.OutputValue(0))
	if err != nil {
		return err
	}
	if r.uniform(n.Input(0)) {
		dims = make([]Dim, len(dims))
	}
	out := append(make([]Dim, max(len(shape)-len(dims), 0)), dims...)
	if err := r.setShape(n.Input(1), out); err != nil {
		return err
	}
	return r.set(n.OutputValue(0), out, true)
}

// maxUniform bounds the elements of a constant that is inspected.
const maxUniform = 1 << 24

// uniform replaces a constant of equal elements by one of them. It reports whether it did.
func (r *reader) uniform(v *onnx.Value) bool {
	if r.constants[v] != nil {
		return true
	}
	c := v.Constant()
	if c == nil || c.Len() < 2 || c.Len() > maxUniform || c.DataType == onnx.String {
		return false
	}
	t, err := reference.FromONNX(c)
	if err != nil || slices.ContainsFunc(t.F, func(x float64) bool { return x != t.F[0] }) ||
		slices.ContainsFunc(t.I, func(x int64) bool { return x != t.I[0] }) {
		return false
	}
	one := &reference.Tensor{DataType: t.DataType, Shape: slices.Repeat([]int{1}, len(t.Shape))}
	if len(t.F) > 0 {
		one.F = t.F[:1]
	} else {
		one.I = t.I[:1]
	}
	r.constants[v] = one
	return true
}

func sizesAsExported(dims []Dim) []int64 {
	list := make([]int64, len(dims))
	for i, d := range dims {
		list[i] = d.size(exported)
	}
	return list
}

// broadcast returns the dimensions of the values after broadcasting.
func (r *reader) broadcast(values []*onnx.Value) (out []Dim, err error) {
	for _, v := range values {
		if v == nil {
			continue
		}
		dims, err := r.of(v)
		if err != nil {
			return nil, err
		}
		next, err := join(out, dims)
		if err != nil && r.dims[v] == nil && r.uniform(v) {
			next, err = join(out, make([]Dim, len(dims)))
		}
		if out = next; err != nil {
			return nil, err
		}
	}
	return out, nil
}

// join broadcasts two lists of dimensions, aligned at the last.
func join(a, b []Dim) ([]Dim, error) {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	for i, d := range b {
		at := len(a) - len(b) + i
		switch {
		case len(d) == 0 || d.same(out[at]):
		case len(out[at]) == 0:
			out[at] = d
		default:
			return nil, errTokens
		}
	}
	return out, nil
}

func (r *reader) softmax(n *onnx.Node) ([]Dim, error) {
	dims, err := r.of(n.Input(0))
	if err != nil {
		return nil, err
	}
	last := int64(len(dims)) - 1
	if axis := n.AttrInt("axis", 1); r.opset < 13 && axis != last && axis != -1 { // this and all later axes together
		return nil, errOther
	}
	return dims, nil
}

func (r *reader) matMul(n *onnx.Node) ([]Dim, error) {
	a, err := r.of(n.Input(0))
	if err != nil {
		return nil, err
	}
	b, err := r.of(n.Input(1))
	if err != nil {
		return nil, err
	}
	if len(a) < 2 || len(b) < 2 {
		return nil, errOther
	}
	if !a[len(a)-1].same(b[len(b)-2]) {
		return nil, errTokens
	}
	out, err := join(a[:len(a)-2], b[:len(b)-2])
	return append(slices.Clone(out), a[len(a)-2], b[len(b)-1]), err
}

func (r *reader) transpose(n *onnx.Node) ([]Dim, error) {
	dims, err := r.of(n.Input(0))
	if err != nil {
		return nil, err
	}
	perm := n.AttrInts("perm")
	if perm == nil {
		dims = slices.Clone(dims)
		slices.Reverse(dims)
		return dims, nil
	}
	out := make([]Dim, 0, len(dims))
	for _, axis := range perm {
		if axis < 0 || axis >= int64(len(dims)) {
			return nil, errOther
		}
		out = append(out, dims[axis])
	}
	return out, nil
}

func (r *reader) reshape(n *onnx.Node) ([]Dim, error) {
	dims, err := r.of(n.Input(0))
	if err != nil {
		return nil, err
	}
	shape, err := r.shape(n.OutputValue(0))
	if err != nil {
		return nil, err
	}
	out, err := regroup(dims, shape)
	if err != nil || !n.Is("Reshape") {
		return out, err
	}
	return out, r.setShape(n.Input(1), out)
}

func (r *reader) expand(n *onnx.Node) ([]Dim, error) {
	dims, err := r.of(n.Input(0))
	if err != nil {
		return nil, err
	}
	shape, err := r.shape(n.OutputValue(0))
	if err != nil {
		return nil, err
	}
	out := make([]Dim, len(shape))
	for i, d := range shape {
		out[i] = Fixed(d)
		if at := i - (len(shape) - len(dims)); at >= 0 && len(dims[at]) > 0 {
			out[i] = dims[at]
		}
	}
	return out, r.setShape(n.Input(1), out)
}

// setShape records that an input of a node is a shape with these dimensions. Nodes that share it must agree.
func (r *reader) setShape(v *onnx.Value, dims []Dim) error {
	if v == nil {
		return errOther
	}
	if before, ok := r.shapes[v]; ok && !slices.EqualFunc(before, dims, Dim.same) {
		return errors.New("two nodes share a shape but need different ones")
	}
	r.shapes[v] = dims
	return nil
}
