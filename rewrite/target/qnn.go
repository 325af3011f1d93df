package target

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// qnn writes what onnxruntime's provider for Qualcomm's NPUs (QNN, backend HTP) takes: ops of opset 23 in float32 and
// float16, of shapes that are numbers. A router it takes as it was exported.
var qnn = &Target{
	Name:    "qnn",
	Summary: "opset 23 with fixed shapes, and dense experts: for Qualcomm's NPUs",
	Opset:   23,
	Static:  true,
	Rules: []Rule{
		{"RMSNorm", "RMSNormalization", func(c *Call) error { return c.qnnNorm(1, c.writeNorm) }},
		{"AddRMSNorm", "Add, RMSNormalization", func(c *Call) error { return c.qnnNorm(2, c.writeAddNorm) }},
		{"GLU", "Sigmoid, Mul", qnnGLU},
		{"RotaryEmbedding", "RotaryEmbedding", qnnRotary},
		{"MoE", "dense experts", qnnMoE},
	},
}

func (c *Call) qnnNorm(s int, write func(norm)) error {
	if err := qnnTypes(c.Type(0), c.Type(s)); err != nil {
		return err
	}
	if rank := len(c.Dims(0)); c.Int("axis") != -1 || rank < 1 || rank > 5 || c.lastDim(0) < 0 {
		return fmt.Errorf("QNN has RmsNorm of the last axis of up to 5, a number, not of axis %d of X, %s",
			c.Int("axis"), shapeText(c.Dims(0)))
	}
	write(qnnRows)
	return nil
}

// qnnRows normalises the rows of a matrix: of more dimensions, the emulated HTP gets RmsNorm wrong for many shapes,
// such as [9, 64, 256] and [1, 11, 4, 16].
func qnnRows(c *Call, x, scale *onnx.Value) *onnx.Value {
	dims := c.Dims(0)
	if len(dims) <= 2 || !slices.ContainsFunc(dims[:len(dims)-2], func(d int64) bool { return d != 1 }) {
		return standardNorm(c, x, scale)
	}
	y := standardNorm(c, c.Op1("Reshape", []*onnx.Value{x, c.Integers(-1, dims[len(dims)-1])}), scale)
	return c.Op1("Reshape", []*onnx.Value{y, c.shape(0)})
}

func (c *Call) shape(i int) *onnx.Value {
	if dims := c.Dims(i); dims != nil && !slices.Contains(dims, -1) {
		return c.Integers(dims...)
	}
	return c.Op1("Shape", []*onnx.Value{c.Input(i)})
}

func qnnGLU(c *Call) error {
	if err := qnnTypes(c.Type(0)); err != nil {
		return err
	}
	c.writeGLU(func(gate *onnx.Value) *onnx.Value { return c.activated(gate, c.Type(0)) })
	return nil
}

func qnnRotary(c *Call) error {
	if err := qnnTypes(c.Type(0)); err != nil {
		return err
	}
	return standardRotary(c)
}

func qnnMoE(c *Call) error {
	if err := qnnTypes(c.Type(fused.MoEX), c.Type(fused.MoEWeights), c.Type(fused.MoEGateUp)); err != nil {
		return err
	}
	return denseMoE(c)
}

// qnnTypes errs unless the types are those that QNN computes in.
func qnnTypes(types ...onnx.DataType) error {
	return onlyFloats("QNN takes float32 and float16", types)
}
