package target

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// ort writes the fused ops that onnxruntime has itself.
var ort = &Target{
	Name:    "ort",
	Summary: "onnxruntime's own fused ops: for onnxruntime without a kernel library",
	Rules: []Rule{
		{"RMSNorm", "SimplifiedLayerNormalization", ortRMSNorm},
	},
}

// ortRMSNorm writes SimplifiedLayerNormalization, which onnxruntime has in the domain of the standard.
func ortRMSNorm(c *Call) error {
	if err := halfOr32("SimplifiedLayerNormalization", c.Type(0)); err != nil {
		return err
	}
	if c.Type(0) != c.Type(1) {
		return fmt.Errorf("SimplifiedLayerNormalization takes X and scale of one type, not %s and %s", c.Type(0), c.Type(1))
	}
	c.Output(0, c.Op1("SimplifiedLayerNormalization", []*onnx.Value{c.Input(0), c.Input(1)}, onnx.IntAttr("axis", c.Int("axis")),
		onnx.FloatAttr("epsilon", c.Float("epsilon")), onnx.IntAttr("stash_type", int64(onnx.Float))))
	return nil
}
