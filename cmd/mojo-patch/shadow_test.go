package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestOwnFunctionIsNotShadowed runs a model whose function mojo.RMSNorm negates; the kernel would normalize instead.
func TestOwnFunctionIsNotShadowed(t *testing.T) {
	b := onnxtest.New(20)
	x, scale := b.Input("x", onnx.Float, "n", 4), b.Floats([]int64{4}, 1, 1, 1, 1)
	f := onnx.NewFunction("mojo", "RMSNorm", "", 20)
	f.Attributes = []string{"axis", "epsilon", "scale_after_cast"}
	in, out := f.Body.AddInput("X", onnx.Type{}), f.Body.NewValue("Y")
	f.Body.AddInput("scale", onnx.Type{})
	f.Body.AddNode("Neg", []*onnx.Value{in}, []*onnx.Value{out})
	f.Body.AddOutput(out)
	b.Model.Functions = append(b.Model.Functions, f)
	b.Model.ImportOpset("mojo", 1)
	y := b.Op("mojo:RMSNorm", x, scale, onnx.IntAttr("axis", -1), onnx.FloatAttr("epsilon", 1e-5),
		onnx.IntAttr("scale_after_cast", 0))
	y.SetType(onnxtest.Type(onnx.Float, "n", 4))
	b.Output(y)
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := onnx.Write(path, b.Model); err != nil {
		t.Fatal(err)
	}
	for flags, refused := range map[string]bool{"": true, "--kernels on": true, "--kernels off": false,
		"--evaluator": false} {
		var stdout, stderr strings.Builder
		code := execute(strings.Fields("run "+path+" --dim n=2 "+flags), &stdout, &stderr)
		if is := strings.Contains(stderr.String(), "calls the function mojo.RMSNorm"); is != refused ||
			(code == cli.ExitDone) == refused {
			t.Errorf("run %s: %d\n%s", flags, code, stderr.String())
		}
	}
}
