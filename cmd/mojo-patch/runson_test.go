package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestRunsOnRefuses demands that no file is written if a node cannot be lowered, and that the error names the node.
func TestRunsOnRefuses(t *testing.T) {
	b := onnxtest.New(27)
	x := b.Input("x", onnx.Float, 1, 4, 8)
	b.Output(b.Ops(2, "CausalConvWithState", x, b.Floats([]int64{4, 1, 1}, 1, 2, 3, 4))[0])
	folder := t.TempDir()
	model, out := filepath.Join(folder, "model.onnx"), filepath.Join(folder, "out.onnx")
	if err := onnx.Write(model, b.Model); err != nil {
		t.Fatal(err)
	}
	var stdout, text bytes.Buffer
	code := execute([]string{"apply", model, "-o", out, "--include", "none", "--runs-on", "cpu@1.30"}, &stdout, &text)
	want := "the model cannot run on CPU in onnxruntime 1.30.0:\nnode \"node_causalconvwithstate\""
	if code != cli.ExitFailed || !strings.Contains(text.String(), want) {
		t.Errorf("exit code %d\n%s", code, &text)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a model was written")
	}
}
