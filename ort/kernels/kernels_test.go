package kernels

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestRefused(t *testing.T) {
	const half, single, brain, long = onnx.Float16, onnx.Float, onnx.BFloat16, onnx.Int64
	for _, c := range []struct {
		domain, op string
		opset      int64
		inputs     []onnx.DataType
		refused    string // "" where there is a kernel
	}{
		{"", "MatMul", 20, []onnx.DataType{half, half}, ""},
		{"ai.onnx", "MatMul", 13, []onnx.DataType{brain, brain}, ""},
		{"", "MatMul", 12, []onnx.DataType{brain, brain}, "takes float16, float32, float64 as input 0, not bfloat16"},
		{"", "MatMul", 20, []onnx.DataType{half, single}, "one type, not float16 and float32"},
		{"", "MatMul", 20, []onnx.DataType{long, long}, "not int64"},
		{"", "Concat", 20, []onnx.DataType{half, half, half, half}, ""},
		{"", "Gather", 20, []onnx.DataType{half, long}, ""},
		{"", "Reshape", 18, []onnx.DataType{half, long}, ""},
		{"", "CumSum", 18, []onnx.DataType{brain, long}, "as input 0, not bfloat16"},
		{"", "Acosh", 20, []onnx.DataType{single}, "has no kernel for Acosh"},
		{"com.microsoft", "GroupQueryAttention", 1, []onnx.DataType{half, half, half}, ""},
		{"com.microsoft", "MatMul", 1, []onnx.DataType{half, half}, "has no kernel for MatMul"},
		{"", "Cos", 22, []onnx.DataType{single}, ""},
		{"", "GlobalLpPool", 22, []onnx.DataType{single}, "has no kernel for GlobalLpPool(22)"},
	} {
		err := Refused(CUDA, c.domain, c.op, c.opset, c.inputs)
		switch {
		case (err == nil) != (c.refused == ""), err != nil && !strings.Contains(err.Error(), c.refused):
			t.Errorf("%s of opset %d with %v: %v, expected %q", c.op, c.opset, c.inputs, err, c.refused)
		}
	}
	if err := Refused(CPU, "", "Acosh", 20, []onnx.DataType{single}); err != nil {
		t.Error(err)
	}
	if err := Refused(CPU, "", "TopK", 20, []onnx.DataType{brain, long}); err == nil {
		t.Error("the CPU takes TopK of bfloat16")
	}
	if n := len(read().ops); n < 200 || Version() == "" {
		t.Errorf("%d ops of onnxruntime %s", n, Version())
	}
}
