package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// rounding is a model that rounds products as dynamic quantization does, with a scale computed from them. Many are half
// way between two steps. It adds offset to the result.
func rounding(t *testing.T, factor, offset float32) string {
	t.Helper()
	const width = 64
	weights := make([]float32, width)
	for i := range weights {
		weights[i] = (float32(i) + 0.5) / 255 * factor
	}
	weights[0], weights[width-1] = 0, factor
	b := onnxtest.New(21)
	x := b.Input("x", onnx.Float, 1)
	product := b.Op("Mul", x, b.Floats([]int64{width}, weights...))
	q := b.Ops(3, "DynamicQuantizeLinear", b.Op("Div", product, x))
	b.Output(b.Op("Add", b.Op("DequantizeLinear", q[0], q[1], q[2]), float64(offset)))
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := onnx.Write(path, b.Model); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSensitivity demands that a model that is as far off as the first one moves when nudged passes, but only with
// --sensitivity.
func TestSensitivity(t *testing.T) {
	model, near, far := rounding(t, 1, 0), rounding(t, 1-1.0/(1<<23), 0), rounding(t, 1, 0.1)
	for _, test := range []struct {
		other string
		flags []string
		code  int
		said  string
	}{
		{near, nil, cli.ExitFailed, "FAILED"},
		{near, []string{"--sensitivity"}, cli.ExitDone, "PASSED: within the model's own sensitivity"},
		{far, []string{"--sensitivity"}, cli.ExitFailed, "beyond"},
		{model, []string{"--sensitivity"}, cli.ExitDone, "changed by itself"},
	} {
		var said bytes.Buffer
		args := append([]string{"diff", model, test.other, "--evaluator"}, test.flags...)
		if code := execute(args, io.Discard, &said); code != test.code || !strings.Contains(said.String(), test.said) {
			t.Errorf("%v exits with %d:\n%s", args, code, &said)
		}
	}
	var said bytes.Buffer
	execute([]string{"match", model}, io.Discard, &said)
	if !strings.Contains(said.String(), "rounded to 8 bits by 1 node") {
		t.Errorf("match says\n%s", &said)
	}
}
