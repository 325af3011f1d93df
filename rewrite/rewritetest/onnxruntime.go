package rewritetest

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// InOnnxruntime runs a model in onnxruntime, without kernels.
func InOnnxruntime(t *testing.T, m *onnx.Model, in map[string]*reference.Tensor) map[string]*reference.Tensor {
	t.Helper()
	b, err := onnx.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ort.OpenBytes(b, "", ort.WithLibrary(orttest.Library(t)), ort.WithThreads(1))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var list []*onnx.Tensor
	for _, v := range m.Graph.Inputs {
		x, err := in[v.Name].ToONNX(v.Name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
	out, err := s.Run(list)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*reference.Tensor{}
	for i, v := range m.Graph.Outputs {
		if got[v.Name], err = reference.FromONNX(out[i]); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// RunsThere compares the results of a patched model in onnxruntime with the model's earlier results.
func RunsThere(t *testing.T, m *onnx.Model, inputs, want map[string]*reference.Tensor, tolerance float64) {
	t.Helper()
	for name, got := range InOnnxruntime(t, m, inputs) {
		w := want[name]
		if d, scale := prove.Distance(w.F, got.F); d > tolerance*scale || !slices.Equal(w.Shape, got.Shape) {
			t.Errorf("%s is %v, off by %g of %g, want the shape %v", name, got.Shape, d, scale, w.Shape)
		}
	}
}
