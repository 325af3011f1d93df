package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// sequenceRules: ops that make tensors from nothing, or whose operands are sequences, which are followed no further
// than joined does.
var sequenceRules = map[string]rule{
	"RandomNormal":   func(c *call) { c.set(0, c.attrType("dtype", onnx.Float), c.attrInts("shape")) },
	"RandomUniform":  func(c *call) { c.set(0, c.attrType("dtype", onnx.Float), c.attrInts("shape")) },
	"SequenceLength": func(c *call) { c.set(0, onnx.Int64, []int64{}) },
	"HannWindow":     window,
	"HammingWindow":  window,
	"BlackmanWindow": window,
}

func window(c *call) {
	n, ok := c.int(0)
	if !ok {
		n = -1
	}
	c.set(0, c.attrType("output_datatype", onnx.Float), []int64{n})
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
		return &m, concat
	}
	m.OpType = "Stack" // no op of the standard, so that nothing evaluates it
	return &m, stack
}

// stack puts tensors of one shape together along a new axis.
func stack(c *call) {
	s := c.shape(0)
	a, ok := axis(c.attrInt("axis", 0), len(s)+1)
	if s == nil || !ok {
		c.set(0, c.firstType(0), nil)
		return
	}
	c.set(0, c.firstType(0), slices.Insert(slices.Clone(s), a, int64(len(c.in))))
}
