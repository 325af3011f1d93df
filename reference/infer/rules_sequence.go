package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// sequenceRules: ops that make tensors from nothing, or whose operands are sequences, which are followed no further
// than joined does.
var sequenceRules = merge(
	each(func(c *call) { c.set(0, c.attrType("dtype", onnx.Float), c.attrInts("shape")) }, "RandomNormal",
		"RandomUniform"),
	each(window, "HannWindow", "HammingWindow", "BlackmanWindow"),
	map[string]rule{"SequenceLength": func(c *call) { c.set(0, onnx.Int64, []int64{}) }},
)

func window(c *call) {
	c.set(0, c.attrType("output_datatype", onnx.Float), []int64{c.intOr(0, -1)})
}

// joined returns a node and its rule in place of one that joins a sequence made on the spot, as older exporters write a
// concatenation: the node reads the tensors themselves. It is nil for other nodes.
func joined(n *onnx.Node) (*onnx.Node, rule) {
	if !n.Is("ConcatFromSequence") || n.Input(0) == nil || !n.Input(0).Producer.Is("SequenceConstruct") {
		return nil, nil
	}
	m := *n
	m.Inputs, m.OpType = n.Input(0).Producer.Inputs, "Concat"
	if n.AttrInt("new_axis", 0) == 0 {
		return &m, rules[ruleKey{"", "Concat"}]
	}
	m.OpType = "Stack" // no op of the standard, so that nothing evaluates it
	return &m, shaped(firstOf(0), stack)
}

// stack puts tensors of one shape together along a new axis.
func stack(c *call) []int64 {
	s := c.shape(0)
	a, ok := axis(c.attrInt("axis", 0), len(s)+1)
	if s == nil || !ok {
		return nil
	}
	return slices.Insert(slices.Clone(s), a, int64(len(c.in)))
}
