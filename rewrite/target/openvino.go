package target

import "fmt"

// openvino writes what OpenVINO's compiler turns into its layers RMS, RoPE and GatherMatmul. Gated
// activations it fuses as they were exported: they stay open. The norm and the rotation of a head are written
// apart, since NormRotary stands before a transposition that RoPE takes in.
var openvino = &Target{
	Name:    "openvino",
	Summary: "forms that OpenVINO compiles to its layers RMS, RoPE and GatherMatmul",
	Rules: []Rule{
		{"RMSNorm", "SimplifiedLayerNormalization", func(c *Call) error { return c.openvinoNorm(c.writeNorm) }},
		{"AddRMSNorm", "Add, SimplifiedLayerNormalization", func(c *Call) error {
			return c.openvinoNorm(c.writeAddNorm)
		}},
		{"RotaryEmbedding", "rotate_half", openvinoRotary},
		{"MoE", "tiled experts", openvinoMoE},
	},
}

// openvinoNorm writes onnxruntime's norm, which OpenVINO reads at every opset, in every type.
func (c *Call) openvinoNorm(write func(norm)) error {
	if axis, rank := c.Int("axis"), len(c.Dims(0)); axis != -1 || rank < 2 {
		return fmt.Errorf("OpenVINO has RMS of the last axis and of rank 2 and more, not of axis %d of X, %s",
			axis, shapeText(c.Dims(0)))
	}
	write(ortNorm)
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
