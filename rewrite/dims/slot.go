package dims

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// rat is a ratio in lowest terms with a positive denominator.
type rat struct{ num, den int64 }

func ratio(num, den int64) rat {
	if den < 0 {
		num, den = -num, -den
	}
	a, b := max(num, -num), den
	for b != 0 {
		a, b = b, a%b
	}
	if a > 1 {
		num, den = num/a, den/a
	}
	return rat{num, den}
}

// A slot is a number in the model that may depend on a dimension: an element of an integer constant, the length of a
// constant along an axis, or the diagonal at which a mask changes. It belongs to one input of one node, because
// exporters share equal constants.
type slot struct {
	node  *onnx.Node
	input int
	part  int // an element, lengthOf(axis) or diagonal
}

// diagonal is the part for the diagonal at which a mask changes, or for the start of a count.
const diagonal = -100

func lengthOf(axis int) int { return -1 - axis }

// axis returns the axis of a slot that is a length.
func (s slot) axis() (axis int, ok bool) { return -1 - s.part, s.part < 0 && s.part != diagonal }

// A constant is a constant input of a node, or several equal ones.
type constant struct {
	node   *onnx.Node
	input  int
	value  *onnx.Value
	tensor *reference.Tensor
	family family // how it continues
	// inferred is the index of the element of a shape that is -1 in the model, or -1 if there is none. tensor has its
	// value at export.
	inferred int
	kind     string // of the node, the input and the elements: layers have constants of one kind
	form     string // the kind and the nodes before: keys and the results of attention may have shapes of one kind
}

// mostElements bounds the elements of a constant whose elements are sizes.
const mostElements = 16

// maxTable bounds the elements of a table.
const maxTable = 1 << 22

// axesOperand lists the inputs of ops that hold axes, steps or the like, which are never sizes. Reductions have them,
// too.
var axesOperand = map[string][]int{"Slice": {3, 4}, "Unsqueeze": {1}, "Squeeze": {1}, "Pad": {3}, "CumSum": {1}}

// holdsAxes reports whether an input of a node holds axes instead of sizes.
func holdsAxes(n *onnx.Node, input int) bool {
	return onnx.IsStandardDomain(n.Domain) && (slices.Contains(axesOperand[n.OpType], input) ||
		input == 1 && strings.HasPrefix(n.OpType, "Reduce"))
}

// constants lists the constants that nodes read.
func constants(m *onnx.Model) (list []*constant, err error) {
	decoded := map[*onnx.Value]*reference.Tensor{}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			for i, v := range n.Inputs {
				if v == nil || holdsAxes(n, i) {
					continue
				}
				t := v.Constant()
				if slices.Index(n.Inputs, v) < i { // read twice, but one constant
					continue
				}
				if t == nil || v.IsInput || t.Len() > maxTable || t.DataType == onnx.String {
					continue
				}
				x := decoded[v]
				if x == nil {
					made, e := reference.FromONNX(t)
					if e != nil {
						err = fmt.Errorf("constant %q: %w", v.Name, e)
						return
					}
					x, decoded[v] = made, made
				}
				list = append(list, &constant{node: n, input: i, value: v, tensor: x, inferred: -1})
			}
		}
	})
	return list, err
}

// hasSizes reports whether elements of the constant may be sizes.
func (c *constant) hasSizes() bool {
	t := c.tensor
	if c.family.linear >= 0 && c.input == 1 && strings.HasPrefix(c.node.OpType,
		"Gather") { // consecutive positions
		return false
	}
	return t.I != nil && t.DataType != onnx.Bool && (t.Rank() <= 1 && t.Len() <= mostElements || t.Len() == 1)
}

// original returns the value of a slot at export.
func (c *constant) original(s slot) int64 {
	if axis, ok := s.axis(); ok {
		return int64(c.tensor.Shape[axis])
	}
	if s.part == diagonal && (c.family.linear >= 0 || c.family.waves != nil || c.family.plane != nil) {
		return c.family.first()
	}
	if s.part == diagonal {
		return c.family.diagonal
	}
	return c.tensor.I[s.part]
}

// formOf describes the nodes before a node.
func formOf(n *onnx.Node) string {
	text := ""
	for _, v := range n.Inputs {
		if text += ","; v == nil || v.Producer == nil || v.Constant() != nil {
			continue
		}
		text += v.Producer.OpType
		for _, x := range v.Producer.Inputs {
			text += fmt.Sprint(x != nil && x.Constant() != nil)
		}
	}
	return text
}

// infers reports whether a slot is the element of a shape that the model infers, -1, and grows at all sizes.
func (c *constant) infers(s slot, f rat) bool {
	return c.inferred >= 0 && s.part == c.inferred && f.den == 1
}

// unbounded is the least number that means all the rest, as the end of a Slice does.
const unbounded = math.MaxInt32

// An option assigns factors to slots of one constant: how much they grow with the dimension.
type option struct {
	set map[slot]rat
	// how is 0 if the number is the size of the dimension, 1 for a multiple, 2 for a constant difference, and 3 for
	// other factors.
	how     int
	chained bool // found by chains
}

// factors lists how much a number may grow with a dimension of this size.
func factors(number, size int64) map[rat]int {
	list := map[rat]int{}
	switch {
	case number >= unbounded:
	case number == size:
		list[rat{1, 1}] = 0
	case number == 0:
	case number%size == 0:
		list[ratio(number, size)], list[rat{1, 1}] = 1, 2
	default:
		list[rat{1, 1}] = 2
		if size%number == 0 {
			list[ratio(number, size)] = 3
		}
	}
	if size > 1 && (number == 2*size-1 || number == 2*size+1) {
		list[rat{2, 1}] = 2
	}
	return list
}

// options lists the possible meanings of a constant's slots for a dimension of this size.
func (c *constant) options(size int64) (list []option) {
	if c.hasSizes() {
		for k, e := range c.tensor.I {
			for f, how := range factors(e, size) {
				list = append(list, option{set: map[slot]rat{{c.node, c.input, k}: f}, how: how})
			}
		}
	}
	return append(list, c.lengthOptions(size)...)
}

// lengthOptions lists the ways in which a table may grow.
func (c *constant) lengthOptions(size int64) (list []option) {
	at := func(part int) slot { return slot{c.node, c.input, part} }
	for axis, n := range c.tensor.Shape {
		if n == 1 && size != 1 {
			continue
		}
		for f, how := range factors(int64(n), size) {
			if c.family.grows(axis) {
				list = append(list, option{set: map[slot]rat{at(lengthOf(axis)): f}, how: how})
			}
		}
	}
	if axis := c.family.counts(); axis >= 0 && c.family.first() != 0 { // the start may follow, with the length or not
		for f := range factors(c.family.first(), size) {
			list = append(list, option{set: map[slot]rat{at(diagonal): f}, how: 4})
			for g, how := range factors(int64(c.tensor.Shape[axis]), size) {
				list = append(list, option{set: map[slot]rat{at(diagonal): f, at(lengthOf(axis)): g}, how: max(how, 1)})
			}
		}
	}
	p, q := c.family.rows, c.family.columns
	if c.family.plane != nil {
		p, q = c.family.plane.rows, c.family.plane.columns
	} else if !c.family.step {
		return list
	}
	grown := func(axis int) map[rat]int { return factors(int64(c.tensor.Shape[axis]), size) }
	one := rat{1, 1}
	if how, ok := grown(q)[one]; ok { // keys before the queries
		if c.family.step {
			list = append(list, option{set: map[slot]rat{at(lengthOf(q)): one, at(diagonal): one}, how: how})
		}
		if other, ok := grown(p)[one]; ok {
			list = append(list, option{
				set: map[slot]rat{at(lengthOf(p)): one, at(lengthOf(q)): one},
				how: min(how, other),
			})
		}
	}
	return list
}
