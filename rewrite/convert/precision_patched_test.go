package convert_test

import (
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// TestPrecisionThenPatch patches converted models whose logits are cut to the last position, and runs them on the
// kernels.
func TestPrecisionThenPatch(t *testing.T) {
	for _, name := range []string{"llama-kv-dynamo-fp32", "gemma2-ts-fp32", "deepseek3-batched_mm-ts-fp32",
		"gptoss-batched_mm-dynamo-fp32"} {
		for _, to := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
			path := filepath.Join("..", "..", "models", name)
			m := convert.Read(t, path+".onnx")
			cases, err := golden.Load(path+".npz", m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := convert.Precision(m, to); err != nil {
				t.Fatal(err)
			}
			r, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff})
			if err != nil || r.Fused() == 0 {
				t.Fatalf("%s: %v, %d sites", name, err, r.Fused())
			}
			if err := convert.LastLogits(m); err != nil {
				t.Fatal(err)
			}
			_, file := convert.Rewritten(t, m)
			s, err := ort.Open(file, ort.WithLibrary(orttest.Library(t)), ort.WithKernelLibrary(orttest.Kernels(t)))
			if err != nil {
				t.Errorf("%s in %s: %v", name, to, err)
				continue
			}
			got, err := s.Run(convert.Narrowed(t, cases[0].Inputs, to))
			if err != nil {
				t.Errorf("%s in %s: %v", name, to, err)
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
