package target

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestSqueeze: squeeze undoes the Unsqueeze that added an axis, and squeezes any other axis.
func TestSqueeze(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, 2, 3)
	v := b.Op("Unsqueeze", x, []int64{1})
	c := NewCall(b.Op("mojo:GLU", v, v).Producer, fused.Site{Opset: 20})
	if got := c.squeeze(v, 1); got != x {
		t.Errorf("axis 1 is taken from %s", got.Name)
	}
	for name, v := range map[string]*onnx.Value{"another axis": v, "an input": x} {
		if n := c.squeeze(v, 0).Producer; n == nil || !n.Is("Squeeze") || n.Input(0) != v {
			t.Errorf("%s: made by %v", name, n)
		}
	}
}
