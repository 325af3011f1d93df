package rules

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// sequenceRules: ops that make tensors from nothing, or whose operands are sequences. joined is the only support for
// sequences.
var sequenceRules = merge(
	each(func(c *Call) { c.set(0, c.attrType("dtype", onnx.Float), c.attrInts("shape")) }, "RandomNormal",
		"RandomUniform"),
	each(window, "HannWindow", "HammingWindow", "BlackmanWindow"),
	map[string]Rule{"SequenceLength": func(c *Call) { c.set(0, onnx.Int64, []int64{}) }},
)

func window(c *Call) {
	c.set(0, c.attrType("output_datatype", onnx.Float), []int64{c.intOr(0, -1)})
}

// Joined handles a node that joins a sequence, as older exporters write a concatenation, or takes an element of one. If
// the sequence is made on the spot, it returns a node that reads the sequence's tensors, and its rule. It returns nil
// for other nodes.
func Joined(n *onnx.Node) (*onnx.Node, Rule) {
	if !n.Is("ConcatFromSequence") && !n.Is("SequenceAt") || n.Input(0) == nil {
		return nil, nil
	}
	made := n.Input(0).Producer
	m := *n
	switch {
	case n.Is("SequenceAt") && made.Is("SequenceConstruct"):
		m.Inputs, m.OpType = append(slices.Clone(made.Inputs), n.Input(1)), "Element"
		return &m, element
	case n.Is("SequenceAt") && made.Is("SplitToSequence"):
		m.Inputs, m.Attributes = []*onnx.Value{made.Input(0), made.Input(1), n.Input(1)}, made.Attributes
		m.OpType = "Part"
		return &m, part
	case n.Is("ConcatFromSequence") && made.Is("SequenceConstruct"):
	default:
		return nil, nil
	}
	m.Inputs, m.OpType = made.Inputs, "Concat"
	if n.AttrInt("new_axis", 0) == 0 {
		return &m, rules[ruleKey{"", "Concat"}]
	}
	m.OpType = "Stack" // not a standard op, so that nothing evaluates it
	return &m, shaped(firstOf(0), stack)
}

// element returns the operand at the index in the last input, counted from the end if negative.
func element(c *Call) {
	n := len(c.In) - 1
	at, ok := c.int(n)
	i, within := Axis(at, n)
	if !ok || !within {
		c.set(0, c.firstType(0), nil)
		return
	}
	c.set(0, c.dtype(i), c.shape(i))
	if v := c.val(i); v != nil {
		c.setValue(0, v)
	}
}

// part is one of the parts that input 0 is split into: of given sizes, of one size, or single slices.
func part(c *Call) {
	s := c.shape(0)
	a, ok := Axis(c.attrInt("axis", 0), len(s))
	switch {
	case s == nil || !ok:
		c.set(0, c.dtype(0), nil)
	case c.has(1):
		c.set(0, c.dtype(0), With(s, a, c.partSize(s[a])))
	case c.attrInt("keepdims", 1) == 0:
		c.set(0, c.dtype(0), slices.Delete(slices.Clone(s), a, a+1))
	default:
		c.set(0, c.dtype(0), With(s, a, 1))
	}
}

// partSize returns the size of a part of an axis of d elements, -1 if it is unknown.
func (c *Call) partSize(d int64) int64 {
	sizes, ok1 := c.ints(1)
	i, ok2 := c.int(2)
	rank := c.shape(1)
	switch {
	case !ok1 || !ok2 || rank == nil:
	case len(rank) > 0:
		if k, ok := Axis(i, len(sizes)); ok {
			return sizes[k]
		}
	case len(sizes) != 1 || sizes[0] < 1 || d < 0:
	case c.w == Proof && (c.table().Open(d) || c.table().Open(sizes[0])):
		if t := c.table(); i >= 0 && !t.Open(i) {
			return t.Least(sizes[0], t.Sub(d, t.Mul(i, sizes[0])))
		}
	default:
		if i < 0 {
			i += (d + sizes[0] - 1) / sizes[0]
		}
		if left := d - i*sizes[0]; i >= 0 && left > 0 {
			return min(sizes[0], left)
		}
	}
	return -1
}

// stack stacks tensors of one shape along a new axis.
func stack(c *Call) []int64 {
	s := c.shape(0)
	a, ok := Axis(c.attrInt("axis", 0), len(s)+1)
	if s == nil || !ok {
		return nil
	}
	return slices.Insert(slices.Clone(s), a, int64(len(c.In)))
}
