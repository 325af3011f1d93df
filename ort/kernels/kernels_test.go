package kernels

import (
	"fmt"
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
		refused    string // "" if there is a kernel
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
		err := Newest(CUDA).Refused(CUDA, c.domain, c.op, c.opset, c.inputs)
		switch {
		case (err == nil) != (c.refused == ""), err != nil && !strings.Contains(err.Error(), c.refused):
			t.Errorf("%s of opset %d with %v: %v, expected %q", c.op, c.opset, c.inputs, err, c.refused)
		}
	}
	if n := len(read().ops); n < 200 {
		t.Errorf("%d ops", n)
	}
}

// TestBodies checks which ops run on their definitions, and in which types.
func TestBodies(t *testing.T) {
	for _, c := range []struct {
		version, op string
		opset       int64
		input       onnx.DataType
		refused     bool
	}{
		{"1.31.1", "Swish", 24, onnx.Float, false},
		{"1.31.1", "Swish", 24, onnx.BFloat16, true},
		{"1.31.1", "Swish", 25, onnx.Float, true},
		{"1.32.0", "Attention", 28, onnx.Float, false},
		{"1.32.0", "CausalConvWithState", 27, onnx.Float, false},
		{"1.32.0", "ReduceLogSum", 28, onnx.Float, false},
		{"1.32.0", "CastLike", 28, onnx.BFloat16, false},
	} {
		for _, v := range Versions(CPU) {
			if err := v.Refused(CPU, "", c.op, c.opset, []onnx.DataType{c.input}); v.Name == c.version &&
				(err != nil) != c.refused {
				t.Errorf("%s of opset %d with %s in %s: %v", c.op, c.opset, c.input, v.Name, err)
			}
		}
	}
}

// TestVersions compares with onnxruntime's answers when it opened such models: see generate.py.
func TestVersions(t *testing.T) {
	names := func(list []Version) string {
		text := ""
		for _, v := range list {
			text += fmt.Sprintf(" %s:%d", v.Name, v.Opset)
		}
		return text
	}
	if got := names(Versions(CPU)); got != " 1.29.0:26 1.30.0:26 1.31.1:26 1.32.0:28" {
		t.Errorf("kernels for the CPU are known of%s", got)
	}
	if got := names(Versions(CUDA)); got != " 1.31.1:26" {
		t.Errorf("kernels for CUDA are known of%s", got)
	}
	for _, c := range []struct {
		op      string
		opset   int64
		types   []onnx.DataType
		refused string // the versions, by the first letters that differ
	}{
		{"Acosh", 20, []onnx.DataType{onnx.Float}, ""},
		{"TopK", 20, []onnx.DataType{onnx.BFloat16, onnx.Int64}, "29 30 31 32"},
		{"RoiAlign", 21, nil, ""},
		{"RoiAlign", 22, nil, "29 30 31 32"},
		{"MaxRoiPool", 22, nil, "29 30 31 32"},
		{"RandomNormal", 22, nil, "29 30 31 32"},
		{"Attention", 24, nil, ""},
		{"Swish", 24, nil, ""}, // on its definition
		{"Swish", 25, nil, "29 30 31 32"},
		{"GroupNormalization", 26, nil, ""},
		{"DequantizeLinear", 28, nil, "32"}, // 1.29 to 1.31 do not know this version, and open no such model
		{"SimplifiedLayerNormalization", 20, []onnx.DataType{onnx.Float, onnx.Float}, ""},
		{"SimplifiedLayerNormalization", 20, []onnx.DataType{onnx.BFloat16, onnx.BFloat16}, "29"},
	} {
		refused := ""
		for _, v := range Versions(CPU) {
			if c.opset <= v.Opset && v.Refused(CPU, "", c.op, c.opset, c.types) != nil {
				refused += " " + v.Name[2:4]
			}
		}
		if refused = strings.TrimSpace(refused); refused != c.refused {
			t.Errorf("%s of opset %d with %v is refused by %q, want %q", c.op, c.opset, c.types, refused, c.refused)
		}
	}
}
