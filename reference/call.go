package reference

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// call is one evaluation of a standard op: the node, its inputs and where it stands.
//
// The accessors remember the first error in err, so that an op may read several arguments before it looks; the
// dispatcher looks again at the end.
type call struct {
	e     *Evaluator
	n     *onnx.Node
	in    []*Tensor
	scope *scope
	frame *frame
	err   error
}

func (c *call) opset() int64 { return c.frame.opset }

func (c *call) exact() bool { return c.e.options.Exact }

func (c *call) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// arg returns input i, nil when it is omitted.
func (c *call) arg(i int) *Tensor {
	if i >= len(c.in) {
		return nil
	}
	return c.in[i]
}

// attr finds an attribute of the node. A reference is followed to the call of the enclosing function; nil when that
// call does not give it either.
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
		c.fail("attribute %q has the kind %d, expected %d", name, a.Type, t)
		return nil
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

// ints returns an INTS attribute and whether it is there.
func (c *call) ints(name string) ([]int64, bool) {
	if a := c.typed(name, onnx.AttrInts); a != nil {
		return a.Ints, true
	}
	return nil, false
}

// integers returns the elements of an integer input; ok is false when it is omitted.
func (c *call) integers(i int) (v []int64, ok bool) {
	t := c.arg(i)
	if t == nil {
		return nil, false
	}
	if t.I == nil && t.Len() > 0 || t.isSeq {
		c.fail("input %d is %s, expected integers", i, t)
		return nil, true
	}
	return t.I, true
}

// integer returns the one element of an integer input.
func (c *call) integer(i int, def int64) int64 {
	v, ok := c.integers(i)
	if !ok {
		return def
	}
	if len(v) != 1 {
		c.fail("input %d has %d elements, expected one", i, len(v))
		return def
	}
	return v[0]
}

// number returns the one element of a numeric input.
func (c *call) number(i int, def float64) float64 {
	t := c.arg(i)
	if t == nil {
		return def
	}
	if t.Len() != 1 || t.S != nil || t.isSeq {
		c.fail("input %d is %s, expected one number", i, t)
		return def
	}
	return t.floatAt(0)
}

// axis normalises an axis into [0, rank).
func (c *call) axis(a int64, rank int) int {
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a >= int64(rank) {
		c.fail("axis %d is outside a rank of %d", a, rank)
		return 0
	}
	return int(a)
}

// axes returns the axes of an op that took them as an attribute before the opset since and as input i from then on;
// ok is false when neither is there. Either spelling is taken in any version.
func (c *call) axes(i int, rank int) (axes []int, ok bool) {
	v, ok := c.integers(i)
	if !ok {
		if v, ok = c.ints("axes"); !ok {
			return nil, false
		}
	}
	axes = make([]int, len(v))
	seen := make([]bool, rank)
	for k, a := range v {
		axes[k] = c.axis(a, rank)
		if c.err != nil {
			return nil, true
		}
		if seen[axes[k]] {
			c.fail("axes %v name a dimension twice", v)
			return nil, true
		}
		seen[axes[k]] = true
	}
	return axes, true
}

// floats returns input i, which must be of a floating-point type.
func (c *call) floats(i int) *Tensor {
	t := c.arg(i)
	if t == nil || !t.IsFloat() || t.isSeq {
		c.fail("input %d is %s, expected floats", i, t)
		return &Tensor{DataType: onnx.Float, Shape: []int{0}, F: []float64{}}
	}
	return t
}

// sameType errs unless the given inputs have one element type (Exact: all are floats).
func (c *call) sameType(idx ...int) bool {
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
			c.fail("inputs have the types %s and %s, which must be the same", first, t)
			return false
		}
	}
	return true
}

// round rounds in place to the type, unless exact.
func (c *call) round(t onnx.DataType, v []float64) {
	if !c.exact() {
		roundAll(t, v)
	}
}

func (c *call) roundOne(t onnx.DataType, v float64) float64 {
	if c.exact() {
		return v
	}
	return roundTo(t, v)
}

// newFloats makes a float tensor of zeros; it is empty and the call has failed when the shape is out of bounds.
func (c *call) newFloats(t onnx.DataType, shape []int) *Tensor {
	if err := checkShape(shape); err != nil {
		c.fail("%w", err)
		shape = []int{0}
	}
	return &Tensor{DataType: t, Shape: shape, F: make([]float64, size(shape))}
}

// newInts is newFloats for integers and bool.
func (c *call) newInts(t onnx.DataType, shape []int) *Tensor {
	if err := checkShape(shape); err != nil {
		c.fail("%w", err)
		shape = []int{0}
	}
	return &Tensor{DataType: t, Shape: shape, I: make([]int64, size(shape))}
}
