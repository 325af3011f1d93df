package fused

import "github.com/mojo-patch/mojo-patch/onnx"

// MoEUnit returns what MoE's definition computes between its two products as a function of its own: from h [...,
// 2I], or [..., I] with packing=none, to a [..., I]. attributes are those of MoE.
func MoEUnit(attributes []*onnx.Attribute, opset int64) *onnx.Function {
	s := Site{Attributes: attributes, Types: []onnx.DataType{onnx.Float}, Opset: opset}
	f := onnx.NewFunction(Domain, "MoEUnit", "", opset)
	b := &body{root: f.Body, g: f.Body, site: s}
	f.Body.AddOutput(b.between(s, f.Body.AddInput("h", onnx.Type{})))
	return f
}
