package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestRoundsActivations tells the ops that round what a model computes from those that hold rounded weights alone.
func TestRoundsActivations(t *testing.T) {
	level := func(n int64) *onnx.Attribute { return onnx.IntAttr("accuracy_level", n) }
	for _, c := range []struct {
		op     string
		attrs  []*onnx.Attribute
		rounds bool
	}{
		{"DynamicQuantizeLinear", nil, true},
		{"com.microsoft:DynamicQuantizeMatMul", nil, true},
		{"com.microsoft:DynamicQuantizeLSTM", nil, true},
		{"com.microsoft:MatMulNBits", []*onnx.Attribute{level(4)}, true},
		{"com.microsoft:MatMulNBits", []*onnx.Attribute{level(0)}, false},
		{"com.microsoft:MatMulNBits", nil, false},
		{"com.microsoft:QMoE", []*onnx.Attribute{level(4)}, true},
		{"MatMul", nil, false},
	} {
		b := onnxtest.New(20)
		n := b.Op(c.op, b.Input("x", onnx.Float, 4), c.attrs).Producer
		if got := roundsActivations(n); got != c.rounds {
			t.Errorf("%s %v: %v", c.op, c.attrs, got)
		}
	}
}
