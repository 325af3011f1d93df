package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer/term"
)

type tensor = reference.Tensor

// far is beyond the numbers in arithmetic on dimensions.
const far = int64(1) << 40

// table returns the expressions of the proof world.
func (c *Call) table() *term.Table { return c.Pass.Table }

// open reports whether an element of t is an expression.
func (c *Call) open(t *tensor) bool {
	return t != nil && (slices.ContainsFunc(t.I, c.table().Open) ||
		slices.ContainsFunc(t.F, func(x float64) bool { return x >= 1 && c.table().Open(int64(x)) }))
}

// equal returns the value of a and b in the proof world, where an op requires them to be equal, and records the
// equality.
func (c *Call) equal(a, b int64) int64 {
	switch t := c.table(); {
	case !t.Open(a) && !t.Open(b):
		return -1
	case !t.Open(a):
		return a
	case !t.Open(b):
		return b
	}
	if e := [2]int64{a, b}; c.Pass.Solving && len(c.Pass.Equalities) < MaxDifferences &&
		!slices.Contains(c.Pass.Equalities, e) {
		c.Pass.Equalities = append(c.Pass.Equalities, e)
	}
	return a
}

// joined returns the dimension that a and b, both not 1, broadcast to in the proof world.
func (c *Call) joined(a, b int64) int64 {
	switch t := c.table(); {
	case a == b:
		return a
	case a < 0 || b < 0:
		return -1
	case !t.Open(a) && !t.Open(b):
		return -1
	case !t.Open(a):
		return a
	case !t.Open(b):
		return b
	default:
		return t.Dimension("join", min(a, b), max(a, b))
	}
}

// product multiplies dimensions. It returns -1 if one is unknown or the product overflows.
func (c *Call) product(s []int64) int64 {
	if c.w != Proof {
		return product(s)
	}
	n := int64(1)
	for _, d := range s {
		switch {
		case d < 0 || n < 0:
			n = -1
		case !c.table().Open(n) && !c.table().Open(d):
			n = product([]int64{n, d})
		default:
			n = c.table().Mul(n, d)
		}
	}
	if slices.Contains(s, 0) {
		return 0
	}
	return n
}

// plus adds dimensions, or returns -1 if one is unknown.
func (c *Call) plus(a, b int64) int64 {
	switch {
	case a < 0 || b < 0:
		return -1
	case c.w == Proof:
		return c.table().Add(a, b)
	}
	return a + b
}

// most returns the greater of two dimensions.
func (c *Call) most(a, b int64) int64 {
	if c.w == Proof {
		return c.table().Greatest(a, b)
	}
	return max(a, b)
}

// split returns the size of part i of an axis of d elements in equal parts, of which the last may be smaller.
func (c *Call) split(d, parts, i int64) int64 {
	if c.w == Proof && c.table().Open(d) {
		if n, ok := c.table().Exact(d, parts); ok {
			return n
		}
		return c.table().Dimension("split", d, parts, i)
	}
	size := (d + parts - 1) / parts
	return min(size, max(d-i*size, 0))
}

// sliced is the function sliced, extended to the proof world.
func (c *Call) sliced(d, start, end, step int64) int64 {
	t := c.table()
	if c.w != Proof || !t.Open(d) && !t.Open(start) && !t.Open(end) {
		return sliced(d, start, end, step)
	}
	if d < 0 || step == 0 || t.Open(step) {
		return -1
	}
	if step < 0 {
		first := start == -1 || !t.Open(start) && t.AtLeast(start, d)
		if step == -1 && first && !t.Open(end) && t.AtLeast(0, t.Add(end, d)) {
			return d // reversed
		}
		return t.Dimension("slice", d, start, end, step)
	}
	within := func(n int64) int64 {
		switch {
		case t.Natural(n):
		case n == -1: // an axis that is cut before its last element has one
			n = t.Sub(d, 1)
		case t.Natural(t.Sub(0, n)): // from the end
			n = t.Greatest(t.Add(d, n), 0)
		default:
			n = t.Dimension("place", d, n)
		}
		return t.Least(n, d)
	}
	length := t.Sub(within(end), within(start))
	if length != t.Sub(d, 1) {
		length = t.Greatest(length, 0)
	}
	if step != 1 {
		length = t.Floor(t.Add(length, step-1), step)
	}
	return length
}

// elements returns the elements of a tensor as numbers of the proof world.
func (c *Call) elements(t *tensor) []term.Number {
	if t.F == nil {
		return t.I
	}
	list := make([]term.Number, len(t.F))
	for i, x := range t.F {
		if n := int64(x); float64(n) == x && c.table().Open(n) {
			list[i] = n
		} else {
			list[i] = c.table().Real(x)
		}
	}
	return list
}

// tensor makes a tensor of numbers of the proof world.
func (c *Call) tensor(t onnx.DataType, shape []int, list []term.Number) *tensor {
	if !t.IsFloat() {
		return reference.NewInts(t, shape, list)
	}
	floats := make([]float64, len(list))
	for i, n := range list {
		if x, ok := c.table().Value(n); ok {
			floats[i] = x
		} else {
			floats[i] = float64(n)
		}
	}
	return reference.NewFloats(t, shape, floats)
}

// prove is evaluate in the proof world, where elements of inputs are expressions.
func (c *Call) prove(in []*tensor) bool {
	if data, ok := moving[c.Node.OpType]; ok && onnx.IsStandardDomain(c.Node.Domain) {
		return c.move(in, data)
	}
	if len(c.out) != 1 || c.out[0].Shape == nil || c.out[0].DataType == onnx.Undefined {
		return false
	}
	size := product(c.out[0].Shape)
	if size < 0 || size > MaxElements {
		return false
	}
	shape := make([]int, len(c.out[0].Shape))
	for i, d := range c.out[0].Shape {
		shape[i] = int(d)
	}
	if c.Node.OpType == "CastLike" {
		in = in[:1]
	}
	operands := make([][]term.Number, len(in))
	shapes := make([][]int, len(in))
	for i, t := range in {
		if t != nil {
			operands[i], shapes[i] = c.elements(t), t.Shape
		}
	}
	list := make([]term.Number, size)
	switch f, each := elementwise[c.Node.OpType]; {
	case !onnx.IsStandardDomain(c.Node.Domain):
		each = false
		fallthrough
	case !each:
		if fold := folds[c.Node.OpType]; fold != nil && size == 1 && len(shapes[0]) == 1 && len(operands[0]) > 0 {
			list[0] = operands[0][0]
			for _, n := range operands[0][1:] {
				list[0] = fold(c, []term.Number{list[0], n})
			}
			break
		}
		all := slices.Concat(operands...)
		for i := range list {
			list[i] = c.table().Result(c.name(), append(all[:len(all):len(all)], int64(i))...)
		}
	default:
		for i := range list {
			var of []term.Number
			for k := range in {
				if in[k] == nil {
					of = append(of, missing)
					continue
				}
				place := broadcastPlace(i, shape, shapes[k])
				if place >= len(operands[k]) {
					return false
				}
				of = append(of, operands[k][place])
			}
			if f == nil {
				list[i] = c.table().Result(c.name(), of...)
			} else {
				list[i] = f(c, of)
			}
		}
	}
	c.out[0].Value = c.tensor(c.out[0].DataType, shape, list)
	return true
}

// missing marks an omitted input.
const missing = -far

// broadcastPlace returns the index of an element in a tensor of another shape that broadcasts to this one.
func broadcastPlace(i int, shape, other []int) int {
	place, step := 0, 1
	for axis := len(shape) - 1; axis >= 0; axis-- {
		at := i % shape[axis]
		i /= shape[axis]
		if k := axis - (len(shape) - len(other)); k >= 0 {
			if other[k] != 1 {
				place += at * step
			}
			step *= other[k]
		}
	}
	return place
}

// name identifies the op of the call with its attributes.
func (c *Call) name() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%s", Canonical(c.Node.Domain), c.Node.OpType)
	for _, a := range c.Node.Attributes {
		if a = c.Frame.Attr(c.Node, a.Name); a != nil {
			fmt.Fprintf(&b, " %s %d %g %q %v %v", a.Name, a.Int, a.Float, a.String, a.Ints, a.Floats)
			if a.Tensor != nil || a.Graph != nil || a.Strings != nil {
				fmt.Fprintf(&b, " %p", a)
			}
		}
	}
	return b.String()
}

// moving lists the ops that only move elements, and the input whose elements they move; -1 means all.
var moving = map[string]int{"Concat": -1, "Expand": 0, "Flatten": 0, "Gather": 0, "GatherElements": 0, "GatherND": 0,
	"Identity": 0, "Reshape": 0, "Slice": 0, "Split": 0, "Squeeze": 0, "Tile": 0, "Transpose": 0, "Unsqueeze": 0}

// move lets the evaluator move expressions.
func (c *Call) move(in []*tensor, data int) bool {
	moved := slices.Clone(in)
	for i, t := range in {
		if t == nil {
			continue
		}
		if data < 0 || i == data {
			moved[i] = reference.NewInts(onnx.Int64, t.Shape, c.elements(t))
		} else if c.open(t) {
			return false
		}
	}
	out, err := c.Frame.Eval.Op(c.Frame.resolved(c.Node), moved)
	if err != nil {
		return false
	}
	for i, t := range out {
		if t == nil || i >= len(c.out) || c.out[i].DataType == onnx.Undefined || t.Len() > MaxElements {
			continue
		}
		c.out[i].Value = c.tensor(c.out[i].DataType, t.Shape, t.I)
		if s := c.out[i].Shape; !Complete(s) || !fits(s, t.Shape) {
			c.out[i].Shape = dimsOf(t)
		}
	}
	return true
}
