package rules

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Call is a rule's view of one node in one world.
type Call struct {
	Pass  *Pass
	Frame *Frame
	Node  *onnx.Node
	In    []*Fact // of the inputs
	w     int     // the world
	// out is the rule's result, one entry per output of the node.
	out []Result

	// Pairs are the dimensions that should be equal; they are gathered if Gather is set, because some differ (Differ).
	Gather bool
	Differ bool
	Pairs  []Pair
}

// Result is a rule's result for an output. Shape is nil if even the rank is unknown.
type Result struct {
	DataType onnx.DataType
	Shape    []int64
	Value    *reference.Tensor
}

// Pair is two numbers, dimensions or products of dimensions, that should be equal.
type Pair struct {
	A, B  int64
	Fixed bool // B is a number that the op requires, whatever the model names A
	Joins bool // one of both may be 1
}

// has reports whether input i is given.
func (c *Call) has(i int) bool { return c.Node.Input(i) != nil }

// shape returns the shape of input i, nil if its rank is unknown or it is omitted.
func (c *Call) shape(i int) []int64 {
	if i >= len(c.In) {
		return nil
	}
	return c.In[i].Shape[c.w]
}

// dtype returns the element type of input i, Undefined if it is unknown or omitted.
func (c *Call) dtype(i int) onnx.DataType {
	if i >= len(c.In) {
		return onnx.Undefined
	}
	return c.In[i].DataType
}

// val returns the elements of input i, nil if they are unknown or omitted.
func (c *Call) val(i int) *reference.Tensor {
	if i >= len(c.In) {
		return nil
	}
	return c.In[i].Value[c.w]
}

// ints returns the elements of an integer input, if known.
func (c *Call) ints(i int) ([]int64, bool) {
	t := c.val(i)
	if t == nil || t.I == nil && t.Len() > 0 {
		return nil, false
	}
	return t.I, true
}

// int returns the element of an integer input of one element, if known.
func (c *Call) int(i int) (int64, bool) {
	v, ok := c.ints(i)
	if !ok || len(v) != 1 {
		return 0, false
	}
	return v[0], true
}

// intOr is int with a default for an unknown element.
func (c *Call) intOr(i int, other int64) int64 {
	if n, ok := c.int(i); ok {
		return n
	}
	return other
}

// axes returns the list of integers from input i, or in older opsets from an attribute. given is false if both are
// missing; ok is false if the list is given but unknown.
func (c *Call) axes(i int, attr string) (axes []int64, given, ok bool) {
	if c.has(i) {
		v, known := c.ints(i)
		return v, true, known
	}
	if a := c.attr(attr); a != nil {
		return a.Ints, true, true
	}
	return nil, false, true
}

// attr returns an attribute, following a reference to the call of the enclosing function.
func (c *Call) attr(name string) *onnx.Attribute {
	return c.Frame.Attr(c.Node, name)
}

func (c *Call) attrInt(name string, def int64) int64 {
	if a := c.attr(name); a != nil && a.Type == onnx.AttrInt {
		return a.Int
	}
	return def
}

func (c *Call) attrString(name, def string) string {
	if a := c.attr(name); a != nil && a.Type == onnx.AttrString {
		return a.String
	}
	return def
}

func (c *Call) attrInts(name string) []int64 {
	if a := c.attr(name); a != nil && a.Type == onnx.AttrInts {
		return a.Ints
	}
	return nil
}

// attrType returns an INT attribute that holds an element type.
func (c *Call) attrType(name string, def onnx.DataType) onnx.DataType {
	return onnx.DataType(c.attrInt(name, int64(def)))
}

// set sets the type and shape of output i.
func (c *Call) set(i int, t onnx.DataType, shape []int64) {
	if i < len(c.out) {
		c.out[i].DataType, c.out[i].Shape = t, shape
	}
}

// setValue sets the elements of output i, and with them its type and shape.
func (c *Call) setValue(i int, t *reference.Tensor) {
	if i < len(c.out) {
		c.out[i] = Result{t.DataType, dimsOf(t), t}
	}
}

func dimsOf(t *reference.Tensor) []int64 {
	s := make([]int64, len(t.Shape))
	for i, d := range t.Shape {
		s[i] = int64(d)
	}
	return s
}

// fresh returns the number for the node's k-th length that depends on the data. It differs between the worlds, so that
// such a length never looks constant.
func (c *Call) fresh(k int) int64 { return c.Pass.Fresh(c.Node, k, c.w) }

// must returns the dimension for a and b, which should be equal: the known one, or -1 if both are known and differ and
// no other choice of numbers makes them equal.
func (c *Call) must(a, b int64) int64 {
	if c.Gather {
		c.Pairs = append(c.Pairs, Pair{A: a, B: b})
	}
	switch {
	case a == b || b < 0:
		return a
	case a < 0:
		return b
	case c.w == Proof:
		return c.equal(a, b)
	}
	c.Differ = true
	if c.Pass.Solving {
		return max(a, b) // a guess that lets this pass find further differences
	}
	return -1
}

// fixes is must for a named dimension a of an input that the op's attributes fix to b.
func (c *Call) fixes(a, b int64) int64 {
	c.must(a, b)
	if c.Gather {
		c.Pairs[len(c.Pairs)-1].Fixed = true
	}
	return b
}

// same returns the shape of a and b, which should be equal.
func (c *Call) same(a, b []int64) []int64 {
	switch {
	case a == nil:
		return b
	case b == nil || SameSlice(a, b):
		return a
	case len(a) != len(b):
		return nil
	}
	out := a
	for i, d := range b {
		out = With(out, i, c.must(out[i], d))
	}
	return out
}

// join returns the dimension that a and b broadcast to.
func (c *Call) join(a, b int64) int64 {
	switch {
	case a == 1:
		return b
	case b == 1:
		return a
	case a == 0 && b < 0 || b == 0 && a < 0:
		return 0
	case c.w == Proof:
		return c.joined(a, b)
	}
	d := c.must(a, b)
	if c.Gather {
		c.Pairs[len(c.Pairs)-1].Joins = true
	}
	return d
}

// broadcast returns the shape that shapes broadcast to, nil if a rank is unknown.
func (c *Call) broadcast(shapes ...[]int64) []int64 {
	var out []int64
	own := false
	for i, s := range shapes {
		if s == nil {
			return nil
		}
		switch {
		case i == 0:
			out = s
			continue
		case len(s) == 0 || !c.Gather && SameSlice(out, s):
			continue
		case len(out) == 0:
			out = s
			continue
		}
		if len(s) > len(out) {
			out, s = s, out
			own = false
		}
		off := len(out) - len(s)
		for k, d := range s {
			o := out[off+k]
			if o == d && !c.Gather {
				continue
			}
			if j := c.join(o, d); j != o {
				if !own {
					out, own = append([]int64(nil), out...), true
				}
				out[off+k] = j
			}
		}
	}
	return out
}

// SameSlice reports whether two shapes are one slice.
func SameSlice(a, b []int64) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Axis normalizes an axis to [0, rank).
func Axis(a int64, rank int) (int, bool) {
	if a < 0 {
		a += int64(rank)
	}
	return int(a), a >= 0 && a < int64(rank)
}

// unknown makes a shape of which only the rank is known.
func unknown(rank int) []int64 {
	s := make([]int64, rank)
	for i := range s {
		s[i] = -1
	}
	return s
}

// With returns a copy of s with dimension i replaced.
func With(s []int64, i int, d int64) []int64 {
	if s[i] == d {
		return s
	}
	s = append([]int64(nil), s...)
	s[i] = d
	return s
}
