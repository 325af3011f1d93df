package convert_test

import (
	"maps"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// TestPrecisionAndPatch converts models before and after they are patched, with the same nodes, cuts their logits to
// the last position, and runs them on the kernels.
func TestPrecisionAndPatch(t *testing.T) {
	for _, name := range []string{"llama-kv-dynamo-fp32", "gemma2-ts-fp32", "deepseek3-batched_mm-ts-fp32",
		"gptoss-batched_mm-dynamo-fp32"} {
		for _, to := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
			path := filepath.Join("..", "..", "models", name)
			m, later := convert.Read(t, path+".onnx"), convert.Read(t, path+".onnx")
			cases, err := golden.Load(path+".npz", m)
			if err != nil {
				t.Fatal(err)
			}
			convertModel := func(m *onnx.Model) {
				t.Helper()
				if _, err := convert.Precision(m, to); err != nil {
					t.Fatal(err)
				}
			}
			patch := func(m *onnx.Model) {
				t.Helper()
				r, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff})
				if err != nil || r.Fused() == 0 {
					t.Fatalf("%s: %v, %d sites", name, err, r.Fused())
				}
			}
			convertModel(m)
			patch(m)
			patch(later)
			convertModel(later)
			if got, want := ops(later), ops(m); to == onnx.Float16 && !maps.Equal(got, want) {
				t.Errorf("%s patched first: %v, not %v", name, got, want)
			}
			for i, m := range []*onnx.Model{m, later} {
				if err := convert.LastLogits(m); err != nil {
					t.Fatal(err)
				}
				_, file := convert.Rewritten(t, m)
				s, err := ort.Open(file, ort.WithLibrary(orttest.Library(t)), ort.WithKernelLibrary(orttest.Kernels(t)))
				if err != nil {
					t.Errorf("%s in %s, order %d: %v", name, to, i, err)
					continue
				}
				got, err := s.Run(convert.Narrowed(t, cases[0].Inputs, to))
				if err != nil {
					t.Errorf("%s in %s, order %d: %v", name, to, i, err)
				}
				for _, g := range got {
					want := cases[0].Output(g.Name)
					if g.Name == "logits" {
						want = convert.LastPosition(t, want)
					}
					convert.Near(t, g, want, 12)
				}
				s.Close()
			}
		}
	}
}

func ops(m *onnx.Model) map[string]int {
	n := map[string]int{}
	for _, x := range m.Graph.Nodes {
		n[x.OpType]++
	}
	return n
}
