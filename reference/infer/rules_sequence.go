package infer

import "github.com/mojo-patch/mojo-patch/onnx"

// sequenceRules: ops that make tensors from nothing, or whose operands are sequences, which are not followed.
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
