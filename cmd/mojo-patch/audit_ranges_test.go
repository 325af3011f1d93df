package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/audit"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestRangesOverflow audits a LayerNorm whose variance overflows, which apply --dtype float16 computes in float32, and
// a product after it that overflows at the larger scale.
func TestRangesOverflow(t *testing.T) {
	for _, scale := range []float64{1, 1e5} {
		b := onnxtest.New(18)
		x := b.Input("x", onnx.Float, "n", 4)
		wide := b.Op("Mul", x, b.Floats([]int64{4}, 900, -900, 900, -900))
		centered := b.Op("Sub", wide, b.Op("ReduceMean", wide, []int64{-1}))
		variance := b.Op("ReduceMean", b.Op("Pow", centered, 2.0), []int64{-1})
		norm := b.Op("Div", centered, b.Op("Sqrt", b.Op("Add", variance, 1e-5)))
		b.Output(b.Op("MatMul", b.Op("Mul", norm, scale), b.Floats([]int64{4, 1}, 1, 2, 1, 2)))
		path := filepath.Join(t.TempDir(), "norm.onnx")
		if err := onnx.Write(path, b.Model); err != nil {
			t.Fatal(err)
		}
		var out, text bytes.Buffer
		args := []string{"audit", path, "--ranges", "--evaluator", "--strict", "--json"}
		if code := execute(args, &out, &text); code != cli.ExitFailed {
			t.Errorf("exit code %d\n%s", code, &text)
		}
		var r audit.RangesReport
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.First == nil || r.First.Op != "Pow" || !r.First.Float32 || r.First.Over == 0 {
			t.Errorf("first %+v", r.First)
		}
		if next := r.FirstIn16; scale == 1 && next != nil || scale > 1 && (next == nil || next.Op != "Mul") {
			t.Errorf("scale %g: first in float16 %+v", scale, next)
		}
		if want := "apply --dtype float16 leaves"; !strings.Contains(text.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &text)
		}
	}
}
