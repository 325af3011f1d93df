package infer

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// call is a rule's view of one node in one world.
type call struct {
	an *analysis
	fr *frame
	n  *onnx.Node
	w  int
	in []*fact
	// out is the rule's result, one entry per output of the node.
	out []result

	// pairs are the dimensions that should be equal; they are only gathered if some differ, see node.
	gather bool
	differ bool
	pairs  []pair
}

// result is a rule's result for an output. shape is nil if even the rank is unknown.
type result struct {
	dtype onnx.DataType
	shape []int64
	val   *reference.Tensor
}

// pair is two numbers, dimensions or products of dimensions, that should be equal.
type pair struct {
	a, b  int64
	fixed bool // b is a number that the op requires, whatever the model names a
	joins bool // one of both may be 1
}

// has reports whether input i is given.
func (c *call) has(i int) bool { return c.n.Input(i) != nil }

// shape returns the shape of input i, nil if its rank is unknown or it is omitted.
func (c *call) shape(i int) []int64 {
	if i >= len(c.in) {
		return nil
	}
	return c.in[i].shape[c.w]
}

// dtype returns the element type of input i, Undefined if it is unknown or omitted.
func (c *call) dtype(i int) onnx.DataType {
	if i >= len(c.in) {
		return onnx.Undefined
	}
	return c.in[i].dtype
}

// val returns the elements of input i, nil if they are unknown or omitted.
func (c *call) val(i int) *reference.Tensor {
	if i >= len(c.in) {
		return nil
	}
	return c.in[i].val[c.w]
}

// ints returns the elements of an integer input, if known.
func (c *call) ints(i int) ([]int64, bool) {
	t := c.val(i)
	if t == nil || t.I == nil && t.Len() > 0 {
		return nil, false
	}
	return t.I, true
}

// int returns the element of an integer input of one element, if known.
func (c *call) int(i int) (int64, bool) {
	v, ok := c.ints(i)
	if !ok || len(v) != 1 {
		return 0, false
	}
	return v[0], true
}

// intOr is int with a default for an unknown element.
func (c *call) intOr(i int, other int64) int64 {
	if n, ok := c.int(i); ok {
		return n
	}
	return other
}

// axes returns the list of integers from input i, or in older opsets from an attribute. given is false if both are
// missing; ok is false if the list is given but unknown.
func (c *call) axes(i int, attr string) (axes []int64, given, ok bool) {
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
func (c *call) attr(name string) *onnx.Attribute {
	return c.fr.attr(c.n, name)
}

func (c *call) attrInt(name string, def int64) int64 {
	if a := c.attr(name); a != nil && a.Type == onnx.AttrInt {
		return a.Int
	}
	return def
}

func (c *call) attrString(name, def string) string {
	if a := c.attr(name); a != nil && a.Type == onnx.AttrString {
		return a.String
	}
	return def
}

func (c *call) attrInts(name string) []int64 {
	if a := c.attr(name); a != nil && a.Type == onnx.AttrInts {
		return a.Ints
	}
	return nil
}

// attrType returns an INT attribute that holds an element type.
func (c *call) attrType(name string, def onnx.DataType) onnx.DataType {
	return onnx.DataType(c.attrInt(name, int64(def)))
}

// set sets the type and shape of output i.
func (c *call) set(i int, t onnx.DataType, shape []int64) {
	if i < len(c.out) {
		c.out[i].dtype, c.out[i].shape = t, shape
	}
}

// setValue sets the elements of output i, and with them its type and shape.
func (c *call) setValue(i int, t *reference.Tensor) {
	if i < len(c.out) {
		c.out[i] = result{t.DataType, dimsOf(t), t}
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
func (c *call) fresh(k int) int64 { return c.an.symbols.at(c.an.symbols.freshFor(c.n, k), c.w) }

// must returns the dimension for a and b, which should be equal: the known one, or -1 if both are known and differ and
// no other choice of numbers makes them equal.
func (c *call) must(a, b int64) int64 {
	if c.gather {
		c.pairs = append(c.pairs, pair{a: a, b: b})
	}
	switch {
	case a == b || b < 0:
		return a
	case a < 0:
		return b
	case c.w == proof:
		return c.equal(a, b)
	}
	c.differ = true
	if c.an.solving {
		return max(a, b) // a guess that lets this pass find further differences
	}
	return -1
}

// fixes is must for a named dimension a of an input that the op's attributes fix to b.
func (c *call) fixes(a, b int64) int64 {
	c.must(a, b)
	if c.gather {
		c.pairs[len(c.pairs)-1].fixed = true
	}
	return b
}

// same returns the shape of a and b, which should be equal.
func (c *call) same(a, b []int64) []int64 {
	switch {
	case a == nil:
		return b
	case b == nil || sameSlice(a, b):
		return a
	case len(a) != len(b):
		return nil
	}
	out := a
	for i, d := range b {
		out = with(out, i, c.must(out[i], d))
	}
	return out
}

// join returns the dimension that a and b broadcast to.
func (c *call) join(a, b int64) int64 {
	switch {
	case a == 1:
		return b
	case b == 1:
		return a
	case a == 0 && b < 0 || b == 0 && a < 0:
		return 0
	case c.w == proof:
		return c.joined(a, b)
	}
	d := c.must(a, b)
	if c.gather {
		c.pairs[len(c.pairs)-1].joins = true
	}
	return d
}

// broadcast returns the shape that shapes broadcast to, nil if a rank is unknown.
func (c *call) broadcast(shapes ...[]int64) []int64 {
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
		case len(s) == 0 || !c.gather && sameSlice(out, s):
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
			if o == d && !c.gather {
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

func sameSlice(a, b []int64) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// axis normalizes an axis to [0, rank).
func axis(a int64, rank int) (int, bool) {
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

// with returns a copy of s with dimension i replaced.
func with(s []int64, i int, d int64) []int64 {
	if s[i] == d {
		return s
	}
	s = append([]int64(nil), s...)
	s[i] = d
	return s
}
