package target

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// openvino writes what OpenVINO's compiler turns into its layers RMS and RoPE. Gated activations it fuses as they were exported, and
// for mixtures of experts its CPU has no layer that ONNX leads to: both stay open.
var openvino = &Target{
	Name:    "openvino",
	Summary: "forms that OpenVINO compiles to its layers RMS and RoPE",
	Rules: []Rule{
		{"RMSNorm", "SimplifiedLayerNormalization", openvinoRMSNorm},
		{"AddRMSNorm", "Add, SimplifiedLayerNormalization", openvinoAddRMSNorm},
		{"RotaryEmbedding", "rotate_half", openvinoRotary},
	},
}

func openvinoRMSNorm(c *Call) error {
	y, err := c.simplifiedNorm(c.Input(0), c.Type(0), 1, c.Int("axis"))
	if err != nil {
		return err
	}
	c.Output(0, y)
	return nil
}

func openvinoAddRMSNorm(c *Call) error {
	sum := c.Op1("Add", []*onnx.Value{c.Input(0), c.Input(1)})
	y, err := c.simplifiedNorm(sum, c.Type(0), 2, c.Int("axis"))
	if err != nil {
		return err
	}
	c.Output(0, y)
	c.Output(1, sum)
	return nil
}

func openvinoRotary(c *Call) error {
	y, err := c.rotateHalf(c.Input(0), 1)
	if err != nil {
		return err
	}
	c.Output(0, y)
	return nil
}

// simplifiedNorm adds onnxruntime's SimplifiedLayerNormalization, which OpenVINO reads at every opset, of x, whose shape is that of
// input 0. It takes one type; where scale is of another, both are cast to float32.
func (c *Call) simplifiedNorm(x *onnx.Value, t onnx.DataType, scaleAt int, axis int64) (*onnx.Value, error) {
	if rank := len(c.Dims(0)); axis != -1 || rank < 2 {
		return nil, fmt.Errorf("OpenVINO has RMS of the last axis and of rank 2 and more, not of axis %d and rank %s", axis, rankText(c.Dims(0)))
	}
	scale, s := c.Input(scaleAt), c.Type(scaleAt)
	in, out := t, t
	if c.Int("scale_after_cast") == 1 {
		out = s
	}
	if t != s {
		in = onnx.Float
	}
	y := c.Op1("SimplifiedLayerNormalization", []*onnx.Value{c.Cast(x, t, in), c.Cast(scale, s, in)}, onnx.IntAttr("axis", axis),
		onnx.FloatAttr("epsilon", c.Float("epsilon")), onnx.IntAttr("stash_type", int64(onnx.Float)))
	return c.Cast(y, in, out), nil
}

// rankText says how many dimensions a shape has.
func rankText(dims []int64) string {
	if dims == nil {
		return "unknown"
	}
	return fmt.Sprint(len(dims))
}
