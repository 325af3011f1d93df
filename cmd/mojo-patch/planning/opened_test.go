package planning

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// gated is a model with a Swish, which onnxruntime runs by its definition in opset 24 only.
func gated(opset int64) *onnx.Model {
	b := onnxtest.New(opset)
	x := b.Input("x", onnx.Float, "n", 4)
	y := b.Op("Swish", x)
	y.Producer.Name = "the_gate"
	b.Output(y)
	return b.Model
}

// fusedGates returns a model of Swish and SwiGLU, the standard's gated units, and the same model after apply.
func fusedGates(t *testing.T) (before, patched *onnx.Model) {
	b := onnxtest.New(28)
	gate, up := b.Input("gate", onnx.Float, "n", 4), b.Input("up", onnx.Float, "n", 4)
	b.Output(b.Op("SwiGLU", b.Op("Mul", b.Op("Swish", gate, onnx.FloatAttr("alpha", 1.702)), up), up))
	patched, err := b.Model.Clone()
	if err != nil {
		t.Fatal(err)
	}
	r, err := rewrite.Apply(patched, rewrite.Request{AssumeAvailable: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Fused() != 2 {
		t.Fatalf("%d of 2 units were fused", r.Fused())
	}
	return b.Model, patched
}

// weighted is a model with a large transposed weight whose data is missing.
func weighted(t *testing.T) *onnx.Model {
	b := onnxtest.New(20)
	w, err := onnx.NewReference("w", onnx.Float, []int64{1024, 512},
		onnx.External{Location: "absent.bin", Length: 4 * 1024 * 512})
	if err != nil {
		t.Fatal(err)
	}
	x := b.Input("x", onnx.Float, "n", 512)
	b.Output(b.Op("MatMul", x, b.Op("Transpose", b.Graph.AddInitializer(w), onnx.IntsAttr("perm", []int64{1, 0}))))
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := onnx.Write(path, b.Model); err != nil {
		t.Fatal(err)
	}
	m, err := onnx.Read(path, onnx.AllowMissingData())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestLargeModelsAreNotOpened: onnxruntime needs minutes for some models of 100,000 nodes.
func TestLargeModelsAreNotOpened(t *testing.T) {
	m := gated(24)
	y := m.Graph.Outputs[0]
	for range mostOpened {
		out := m.Graph.NewValue("y")
		m.Graph.AddNode("Relu", []*onnx.Value{y}, []*onnx.Value{out})
		y = out
	}
	var said strings.Builder
	r, err := newOpener(ort.Library{}, "", true).check(&cli.App{Out: io.Discard, Err: &said}, m, "")
	if err != nil || r.Opened || !strings.Contains(r.Reason, "up to 30000 are opened") ||
		!strings.Contains(said.String(), "not opened in onnxruntime") {
		t.Errorf("%+v, %v, said %q", r, err, &said)
	}
}

// assembled returns a model with a weight that consists of two parts of an external file.
func assembled(t *testing.T) *onnx.Model {
	b := onnxtest.New(21)
	x := b.Input("x", onnx.Float, 8192)
	part := func() *onnx.Value { return b.Floats([]int64{4096}, make([]float32, 4096)...) }
	parts := []*onnx.Value{part(), part()}
	b.Output(b.Op("Add", x, b.Op("Concat", parts, onnx.IntAttr("axis", 0))))
	path := filepath.Join(t.TempDir(), "parts.onnx")
	if err := onnx.Write(path, b.Model, onnx.ExternalDataOver(0)); err != nil {
		t.Fatal(err)
	}
	m, err := onnx.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	concat := m.Graph.Nodes[0]
	both, err := onnx.Concat("both", 0, []*onnx.Tensor{concat.Inputs[0].Const, concat.Inputs[1].Const})
	if err != nil {
		t.Fatal(err)
	}
	add := m.Graph.Nodes[1]
	add.SetInput(1, m.Graph.AddInitializer(both))
	return m
}

// TestOpened demands an error with an exit code if onnxruntime does not open a patched model, unless it does not open
// the original model either.
func TestOpened(t *testing.T) {
	lib, err := ort.Find(orttest.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	gates, fused := fusedGates(t)
	for _, c := range []struct {
		name            string
		before, patched *onnx.Model
		opened          bool
		says            string
	}{
		{"opens", gated(24), gated(24), true, ""},
		{"no longer opens", gated(24), gated(25), false, "Swish(24) node with name 'the_gate'"},
		{"opens since it was patched", gates, fused, true, ""},
		{"not opened before", gates, gates, false, ""},
		{"never opened", gated(25), gated(25), false, ""},
		{"weights assembled from a file", assembled(t), assembled(t), true, ""},
		{"weights that are not there", weighted(t), weighted(t), true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.onnx")
			if err := onnx.Write(path, c.before); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			a := &cli.App{Out: io.Discard, Err: &said}
			r, err := newOpener(lib, "", true).check(a, c.patched, path, onnx.AllowMissingData())
			if r.Opened != c.opened || (r.Reason == "") != c.opened {
				t.Errorf("reported %+v", r)
			}
			if c.says == "" && err != nil || c.says != "" && (cli.ExitCode(err) != cli.ExitFailed ||
				!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "--check-kernels off")) {
				t.Errorf("exit code %d: %v", cli.ExitCode(err), err)
			}
			if both := strings.Contains(said.String(), "onnxruntime does not open"); both != (!c.opened && err == nil) {
				t.Errorf("said %q", said.String())
			}
		})
	}
}
