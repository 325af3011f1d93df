package target

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// qnn writes what onnxruntime's provider for Qualcomm's NPUs (QNN, backend HTP) takes: ops of opset 23 in float32 and float16, of
// shapes that are numbers. A router it takes as it was exported.
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

// qnnNorm writes a norm whose scale is input s: QNN's is of the last axis, and of four dimensions at most.
func (c *Call) qnnNorm(s int, write func(norm)) error {
	if err := qnnTypes(c.Type(0), c.Type(s)); err != nil {
		return err
	}
	if rank := len(c.Dims(0)); c.Int("axis") != -1 || rank < 1 || rank > 4 {
		return fmt.Errorf("QNN has RmsNorm of the last axis of up to 4 dimensions, not of axis %d of X, %s", c.Int("axis"), shapeText(c.Dims(0)))
	}
	write(standardNorm)
	return nil
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
	if err := qnnTypes(c.Type(moeX), c.Type(moeWeights), c.Type(moeGateUp)); err != nil {
		return err
	}
	return denseMoE(c)
}

// qnnTypes errs unless the types are those that QNN computes in.
func qnnTypes(types ...onnx.DataType) error {
	for _, t := range types {
		if t != onnx.Float && t != onnx.Float16 {
			return fmt.Errorf("QNN takes float32 and float16, not %s", t)
		}
	}
	return nil
}
