package precision_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/precision"
)

// TestApply converts the bundled decoders to every type, with proofs.
func TestApply(t *testing.T) {
	paths, err := filepath.Glob("../../models/*.onnx")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d models, %v", len(paths), err)
	}
	for _, path := range paths {
		for _, to := range []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16} {
			m, err := onnx.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			run := &pass.Run{Editor: edit.Editor{Model: m}}
			r, err := precision.Apply(run, to)
			name := strings.TrimSuffix(filepath.Base(path), ".onnx")
			if err != nil {
				t.Errorf("%s to %s: %v", name, to, err)
			} else if r.Check == nil || r.Check.Cases == 0 || len(run.Assumed()) > 0 {
				t.Errorf("%s to %s: %+v, assumed %q", name, to, r, run.Assumed())
			}
			m.Close()
		}
	}
}

// TestMissingWeights refuses a model whose data file would stay in the other type.
func TestMissingWeights(t *testing.T) {
	m, err := onnx.Read("../../models/smollm2/graph.onnx", onnx.AllowMissingData())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, err = precision.Apply(&pass.Run{Editor: edit.Editor{Model: m}}, onnx.Float16)
	if !errors.Is(err, onnx.ErrMissingData) || !strings.Contains(err.Error(), "would have another type") {
		t.Errorf("got %v", err)
	}
}

// TestDefault converts a model with an input that has a default: the default is what the proof runs on.
func TestDefault(t *testing.T) {
	b := onnxtest.New(20)
	w := b.Graph.AddDefault(onnxtest.Type(onnx.Float, 2), onnx.NewFloat32s("w", []int64{2}, []float32{1, 2}))
	x := b.Input("x", onnx.Float, "batch", 2)
	b.Output(b.Op("Add", b.Op("Mul", x, w), x))
	r, err := precision.Apply(&pass.Run{Editor: edit.Editor{Model: b.Model}}, onnx.Float16)
	if err != nil || r.Check == nil || r.Check.Cases == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if w.Const.DataType != onnx.Float16 {
		t.Errorf("the default is %s", w.Const.DataType)
	}
}
