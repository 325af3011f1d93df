// Package op is what an op sees of an evaluation: its node, inputs and attributes, the rounding of results, and the
// counted resources.
package op

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// Call is one evaluation of a standard op: the node, its inputs and its surroundings.
//
// Its accessors fail if the op does not accept an argument; see tensor.Fail.
type Call struct {
	Node  *onnx.Node
	In    []*tensor.Tensor
	Frame *Frame
	// Exact and Perturb are the evaluator's options: no rounding, and the seed of other roundings.
	Exact   bool
	Perturb uint64
	// Body runs a subgraph of the node on the inputs, in its own scope inside the enclosing one.
	Body func(g *onnx.Graph, in []*tensor.Tensor) ([]*tensor.Tensor, error)
}

// Opset returns the opset that the op is of.
func (c *Call) Opset() int64 { return c.Frame.Opset }

// Arg returns input i, or nil if it is omitted.
func (c *Call) Arg(i int) *tensor.Tensor {
	if i >= len(c.In) {
		return nil
	}
	return c.In[i]
}

// Attr finds an attribute of the node. It follows a reference to the call of the enclosing function, and returns nil if
// that call omits it.
func (c *Call) Attr(name string) *onnx.Attribute {
	a := c.Node.Attr(name)
	if a == nil || a.RefName == "" {
		return a
	}
	return c.Frame.Attrs[a.RefName]
}

func (c *Call) typed(name string, t onnx.AttributeType) *onnx.Attribute {
	a := c.Attr(name)
	if a != nil && a.Type != t {
		tensor.Fail("attribute %q has the kind %d, expected %d", name, a.Type, t)
	}
	return a
}

// Int returns an INT attribute, or def if it is missing.
func (c *Call) Int(name string, def int64) int64 {
	if a := c.typed(name, onnx.AttrInt); a != nil {
		return a.Int
	}
	return def
}

// Float returns a FLOAT attribute, or def if it is missing.
func (c *Call) Float(name string, def float64) float64 {
	if a := c.typed(name, onnx.AttrFloat); a != nil {
		return float64(a.Float)
	}
	return def
}

// Str returns a STRING attribute, or def if it is missing.
func (c *Call) Str(name, def string) string {
	if a := c.typed(name, onnx.AttrString); a != nil {
		return a.String
	}
	return def
}

// Ints returns an INTS attribute and whether it exists.
func (c *Call) Ints(name string) ([]int64, bool) {
	if a := c.typed(name, onnx.AttrInts); a != nil {
		return a.Ints, true
	}
	return nil, false
}

// Integers returns the elements of an integer input; ok is false if it is omitted.
func (c *Call) Integers(i int) (v []int64, ok bool) {
	t := c.Arg(i)
	if t == nil {
		return nil, false
	}
	if t.I == nil && t.Len() > 0 || tensor.IsSequence(t) {
		tensor.Fail("input %d is %s, expected integers", i, t)
	}
	return t.I, true
}

// List returns a list of integers from input i, or in older opsets from an attribute; ok is false if both are missing.
func (c *Call) List(i int, attribute string) (v []int64, ok bool) {
	if v, ok = c.Integers(i); ok {
		return v, true
	}
	return c.Ints(attribute)
}

// Integer returns the only element of an integer input.
func (c *Call) Integer(i int, def int64) int64 {
	v, ok := c.Integers(i)
	if !ok {
		return def
	}
	if len(v) != 1 {
		tensor.Fail("input %d has %d elements, expected one", i, len(v))
	}
	return v[0]
}

// Number returns the only element of a numeric input.
func (c *Call) Number(i int, def float64) float64 {
	t := c.Arg(i)
	if t == nil {
		return def
	}
	if t.Len() != 1 || t.S != nil || tensor.IsSequence(t) {
		tensor.Fail("input %d is %s, expected one number", i, t)
	}
	return tensor.FloatAt(t, 0)
}

// Axis normalizes an axis to [0, rank).
func (c *Call) Axis(a int64, rank int) int {
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a >= int64(rank) {
		tensor.Fail("axis %d is outside a rank of %d", a, rank)
	}
	return int(a)
}

// Axes returns the axes from input i or from the attribute, in any version of the op. ok is false if both are missing.
func (c *Call) Axes(i int, rank int) (axes []int, ok bool) {
	v, ok := c.List(i, "axes")
	if !ok {
		return nil, false
	}
	axes = make([]int, len(v))
	seen := make([]bool, rank)
	for k, a := range v {
		axes[k] = c.Axis(a, rank)
		if seen[axes[k]] {
			tensor.Fail("axes %v name a dimension twice", v)
		}
		seen[axes[k]] = true
	}
	return axes, true
}

// Floats returns input i, which must be of a floating-point type.
func (c *Call) Floats(i int) *tensor.Tensor {
	t := c.Arg(i)
	if t == nil || !t.IsFloat() || tensor.IsSequence(t) {
		tensor.Fail("input %d is %s, expected floats", i, t)
	}
	return t
}

// SameType fails unless the given inputs have one element type (Exact: all are floats).
func (c *Call) SameType(idx ...int) {
	var first *tensor.Tensor
	for _, i := range idx {
		t := c.Arg(i)
		if t == nil {
			continue
		}
		if first == nil {
			first = t
		}
		if t.DataType != first.DataType && !(c.Exact && t.IsFloat() && first.IsFloat()) {
			tensor.Fail("inputs have the types %s and %s, which must be the same", first, t)
		}
	}
}

// Round rounds in place to the type, unless exact.
func (c *Call) Round(t onnx.DataType, v []float64) {
	switch {
	case c.Exact:
	case c.perturbs(t):
		c.roundPerturbed(t, v)
	default:
		elements.RoundAll(t, v)
	}
}

// RoundOne rounds one number to the type, unless exact.
func (c *Call) RoundOne(t onnx.DataType, v float64) float64 {
	if c.Exact {
		return v
	}
	return elements.Round(t, v)
}

// Frame is the shared state of the nodes of one function body: its opset and the attributes of the call.
type Frame struct {
	Opset int64
	Attrs map[string]*onnx.Attribute
	Depth int // of nested function calls
	Meter *Meter
}

// Index normalizes an index to [0, d), counting negative ones from the end.
func (c *Call) Index(i int64, d int) int {
	if i < 0 {
		i += int64(d)
	}
	if i < 0 || i >= int64(d) {
		tensor.Fail("index %d is outside a dimension of %d", tensor.Pick(i < 0, i-int64(d), i), d)
	}
	return int(i)
}
