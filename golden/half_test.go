package golden

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestHalf distinguishes models in half precision from those whose quantized weights have half scales.
func TestHalf(t *testing.T) {
	for at, want := range map[int]onnx.DataType{fused.LinearScale: onnx.Undefined, fused.LinearMinus: onnx.Undefined,
		fused.LinearX: onnx.Float16, fused.LinearBias: onnx.Float16} {
		b := onnxtest.New(20)
		inputs := make([]any, fused.LinearBias+1)
		for i := range inputs {
			inputs[i] = b.Input("in", onnx.Float, 16)
		}
		half, err := onnx.NewTensor("half", onnx.Float16, []int64{2}, make([]byte, 4))
		if err != nil {
			t.Fatal(err)
		}
		inputs[at] = b.Constant(half)
		b.Output(b.Op(fused.Domain+":Linear", inputs...))
		if got := Half(b.Model); got != want {
			t.Errorf("float16 in input %d: %v", at, got)
		}
	}
}
