package reference

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
)

// call is one evaluation of a standard op: the node, its inputs and its surroundings.
//
// Its accessors fail if the op does not accept an argument; see fail.
type call struct {
	e     *Evaluator
	n     *onnx.Node
	in    []*Tensor
	scope *scope
	frame *frame
}

// failure is the panic value of an op that cannot continue. The dispatcher, which calls all ops, makes it an error.
type failure struct{ error }

// fail ends the current op with an error. Only code called by ops may use it.
func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// check fails with the error, if there is one.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// try returns v, or fails with the error.
func try[T any](v T, err error) T {
	check(err)
	return v
}

func (c *call) opset() int64 { return c.frame.opset }

func (c *call) exact() bool { return c.e.options.Exact }

// arg returns input i, or nil if it is omitted.
func (c *call) arg(i int) *Tensor {
	if i >= len(c.in) {
		return nil
	}
	return c.in[i]
}

// attr finds an attribute of the node. It follows a reference to the call of the enclosing function, and returns nil if
// that call omits it.
func (c *call) attr(name string) *onnx.Attribute {
	a := c.n.Attr(name)
	if a == nil || a.RefName == "" {
		return a
	}
	return c.frame.attrs[a.RefName]
}

func (c *call) typed(name string, t onnx.AttributeType) *onnx.Attribute {
	a := c.attr(name)
	if a != nil && a.Type != t {
		fail("attribute %q has the kind %d, expected %d", name, a.Type, t)
	}
	return a
}

func (c *call) int(name string, def int64) int64 {
	if a := c.typed(name, onnx.AttrInt); a != nil {
		return a.Int
	}
	return def
}

func (c *call) float(name string, def float64) float64 {
	if a := c.typed(name, onnx.AttrFloat); a != nil {
		return float64(a.Float)
	}
	return def
}

func (c *call) str(name, def string) string {
	if a := c.typed(name, onnx.AttrString); a != nil {
		return a.String
	}
	return def
}

// ints returns an INTS attribute and whether it exists.
func (c *call) ints(name string) ([]int64, bool) {
	if a := c.typed(name, onnx.AttrInts); a != nil {
		return a.Ints, true
	}
	return nil, false
}

// integers returns the elements of an integer input; ok is false if it is omitted.
func (c *call) integers(i int) (v []int64, ok bool) {
	t := c.arg(i)
	if t == nil {
		return nil, false
	}
	if t.I == nil && t.Len() > 0 || t.isSeq {
		fail("input %d is %s, expected integers", i, t)
	}
	return t.I, true
}

// list returns a list of integers from input i, or in older opsets from an attribute; ok is false if both are missing.
func (c *call) list(i int, attribute string) (v []int64, ok bool) {
	if v, ok = c.integers(i); ok {
		return v, true
	}
	return c.ints(attribute)
}

// integer returns the only element of an integer input.
func (c *call) integer(i int, def int64) int64 {
	v, ok := c.integers(i)
	if !ok {
		return def
	}
	if len(v) != 1 {
		fail("input %d has %d elements, expected one", i, len(v))
	}
	return v[0]
}

// number returns the only element of a numeric input.
func (c *call) number(i int, def float64) float64 {
	t := c.arg(i)
	if t == nil {
		return def
	}
	if t.Len() != 1 || t.S != nil || t.isSeq {
		fail("input %d is %s, expected one number", i, t)
	}
	return t.floatAt(0)
}

// axis normalizes an axis to [0, rank).
func (c *call) axis(a int64, rank int) int {
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a >= int64(rank) {
		fail("axis %d is outside a rank of %d", a, rank)
	}
	return int(a)
}

// axes returns the axes from input i or from the attribute, in any version of the op. ok is false if both are missing.
func (c *call) axes(i int, rank int) (axes []int, ok bool) {
	v, ok := c.list(i, "axes")
	if !ok {
		return nil, false
	}
	axes = make([]int, len(v))
	seen := make([]bool, rank)
	for k, a := range v {
		axes[k] = c.axis(a, rank)
		if seen[axes[k]] {
			fail("axes %v name a dimension twice", v)
		}
		seen[axes[k]] = true
	}
	return axes, true
}

// floats returns input i, which must be of a floating-point type.
func (c *call) floats(i int) *Tensor {
	t := c.arg(i)
	if t == nil || !t.IsFloat() || t.isSeq {
		fail("input %d is %s, expected floats", i, t)
	}
	return t
}

// sameType fails unless the given inputs have one element type (Exact: all are floats).
func (c *call) sameType(idx ...int) {
	var first *Tensor
	for _, i := range idx {
		t := c.arg(i)
		if t == nil {
			continue
		}
		if first == nil {
			first = t
		}
		if t.DataType != first.DataType && !(c.exact() && t.IsFloat() && first.IsFloat()) {
			fail("inputs have the types %s and %s, which must be the same", first, t)
		}
	}
}

// round rounds in place to the type, unless exact.
func (c *call) round(t onnx.DataType, v []float64) {
	switch {
	case c.exact():
	case c.perturbs(t):
		c.roundPerturbed(t, v)
	default:
		elements.RoundAll(t, v)
	}
}

func (c *call) roundOne(t onnx.DataType, v float64) float64 {
	if c.exact() {
		return v
	}
	return elements.Round(t, v)
}

// newFloats makes a float tensor of zeros if the shape is within bounds.
func newFloats(t onnx.DataType, shape []int) *Tensor {
	check(checkShape(shape))
	return &Tensor{DataType: t, Shape: shape, F: make([]float64, size(shape))}
}

// newInts is newFloats for integers and bool.
func newInts(t onnx.DataType, shape []int) *Tensor {
	check(checkShape(shape))
	return &Tensor{DataType: t, Shape: shape, I: make([]int64, size(shape))}
}
