package target

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// standard writes ops of the ONNX standard alone, for any runtime that has them.
var standard = &Target{
	Name:    "onnx",
	Summary: "ops of the standard, opset 23: for any runtime",
	Opset:   23,
	Rules: []Rule{
		{"RMSNorm", "RMSNormalization", standardRMSNorm},
	},
}

// standardRMSNorm writes RMSNormalization (opset 23), which rounds to the type of X before it applies the scale, whose type Y has.
func standardRMSNorm(c *Call) error {
	x, scale := c.Input(0), c.Input(1)
	if c.Int("scale_after_cast") == 0 && c.Type(0) != c.Type(1) {
		return fmt.Errorf("RMSNormalization gives the type of scale, %s; the site %s", c.Type(1), c.Type(0))
	}
	c.Output(0, c.Op1("RMSNormalization", []*onnx.Value{x, scale}, onnx.IntAttr("axis", c.Int("axis")),
		onnx.FloatAttr("epsilon", c.Float("epsilon")), onnx.IntAttr("stash_type", int64(onnx.Float))))
	return nil
}
