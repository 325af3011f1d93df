package weights_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestKeepHalves loads a 16-bit checkpoint as it is and widened. The model computes the same; matrices keep the file's
// bytes, and norms stay in float32.
func TestKeepHalves(t *testing.T) {
	for _, typ := range []onnx.DataType{onnx.BFloat16, onnx.Float16} {
		dtype := map[onnx.DataType]string{onnx.BFloat16: "BF16", onnx.Float16: "F16"}[typ]
		tensors, err := checkpoints.Llama(bundled(t, "llama-ts-fp32"))
		if err != nil {
			t.Fatal(err)
		}
		raw := map[string][]byte{}
		for i, x := range tensors {
			half := make([]byte, 2*len(x.Data))
			if err := blocks.Half(typ).Encode(half, x.Data); err != nil {
				t.Fatal(err)
			}
			tensors[i].DType, tensors[i].Raw = dtype, half
			raw[x.Name] = half
		}
		path := filepath.Join(t.TempDir(), "m.safetensors")
		if err := checkpoints.Safetensors(path, tensors); err != nil {
			t.Fatal(err)
		}
		wide, _ := load(t, stripped(t, "llama-ts-fp32"), open(t, path), weights.MatchOptions{})
		g, c := stripped(t, "llama-ts-fp32"), open(t, path)
		p, err := weights.Match(g, c, weights.MatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.KeepQuantized(g, weights.KeepOptions{Halves: true}); err != nil {
			t.Fatal(err)
		}
		if err := p.Apply(nil); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "model.onnx")
		if err := onnx.Write(out, g, onnx.ExternalDataOver(1023)); err != nil {
			t.Fatal(err)
		}
		kept, err := onnx.Read(out)
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		r := p.Report()
		if len(r.Quantized) != 1 || r.Quantized[0].Matrices != p.Kept() || r.Quantized[0].Bits != 16 || p.Kept() < 15 {
			t.Errorf("%s: %+v, %d kept", dtype, r.Quantized, p.Kept())
		}
		products := 0
		for _, n := range kept.Graph.Nodes {
			if n.OpType != "HalfLinear" {
				continue
			}
			products++
			w := n.Input(1).Const
			b, err := w.Bytes()
			if err != nil || w.DataType != typ || n.AttrString("layout", "") != "out_in" {
				t.Fatalf("%s: %s of %s, %v", dtype, n.AttrString("layout", ""), w.DataType, err)
			}
			found := false
			for _, x := range raw {
				found = found || slices.Equal(x, b)
			}
			if !found {
				t.Errorf("%s: no tensor of the file has the bytes of %q", dtype, n.Input(1).Name)
			}
		}
		if products != 15 {
			t.Errorf("%s: %d products", dtype, products)
		}
		ids := reference.NewInts(onnx.Int64, []int{1, 4}, []int64{3, 1, 150, 7})
		in := map[string]*reference.Tensor{"input_ids": ids}
		for _, v := range kept.Graph.Inputs {
			if v.Name == "attention_mask" {
				in[v.Name] = reference.NewInts(onnx.Int64, []int{1, 4}, []int64{1, 1, 1, 1})
			}
		}
		var results [2][]float64
		for i, m := range []*onnx.Model{wide, kept} {
			e, err := reference.New(m, reference.Options{})
			if err != nil {
				t.Fatal(err)
			}
			outputs, err := e.Run(in)
			if err != nil {
				t.Fatal(err)
			}
			results[i] = outputs["logits"].F
		}
		for i, x := range results[0] {
			if d := x - results[1][i]; d > 1e-5 || d < -1e-5 {
				t.Fatalf("%s: logit %d is %g, and %g from kept weights", dtype, i, x, results[1][i])
			}
		}
	}
}
