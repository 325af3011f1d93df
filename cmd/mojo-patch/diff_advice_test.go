package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestDiffAdvice fails a comparison of two models, and demands the way out that the first one's node is known to need.
func TestDiffAdvice(t *testing.T) {
	if onnxruntime, _ := testEnvironment(t); onnxruntime == "" {
		t.Skip("needs onnxruntime: make fetch")
	}
	model := func(op string, second bool) string {
		b := onnxtest.New(21)
		x := b.Input("x", onnx.Float, "rows", "4")
		y := x
		switch op {
		case "RandomNormalLike":
			y = b.Op(op, x)
		case "DynamicQuantizeLinear":
			q := b.Ops(3, op, x)
			y = b.Op("DequantizeLinear", q[0], q[1], q[2])
		default:
			y = b.Op(op, x)
		}
		if second {
			y = b.Op("Add", y, 1.0)
		}
		b.Output(y)
		path := filepath.Join(t.TempDir(), "model.onnx")
		if err := onnx.Write(path, b.Model); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for op, want := range map[string]string{
		"RandomNormalLike":      "is random: no two runs are alike unless it has a seed",
		"DynamicQuantizeLinear": "try --sensitivity",
		"Neg":                   "",
	} {
		var out, said bytes.Buffer
		code := run([]string{"diff", model(op, false), model(op, true)}, &out, &said)
		if code != exitFailed || !strings.Contains(said.String(), want) ||
			strings.Contains(said.String(), "--sensitivity") != (op == "DynamicQuantizeLinear") {
			t.Errorf("%s: exit code %d, want %q in\n%s", op, code, want, said.String())
		}
	}
}
