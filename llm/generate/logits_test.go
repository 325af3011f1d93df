package generate_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// behind writes a model with the nodes that op adds after its logits.
func behind(t *testing.T, path string, dt onnx.DataType, dims []onnx.Dim,
	op func(g *onnx.Graph, raw *onnx.Value) *onnx.Node) string {
	t.Helper()
	m, err := onnx.Read(path)
	must(t, err)
	defer m.Close()
	i := slices.IndexFunc(m.Graph.Outputs, func(v *onnx.Value) bool { return v.Name == "logits" })
	logits, raw := m.Graph.Outputs[i], m.Graph.NewValue("raw")
	producer := logits.Producer
	last := op(m.Graph, raw)
	producer.TakeOutput(0, raw)
	last.TakeOutput(0, logits)
	logits.SetType(onnx.Type{DataType: dt, HasShape: true, Dims: dims})
	out := filepath.Join(t.TempDir(), "behind.onnx")
	must(t, onnx.Write(out, m))
	return out
}

// lastOnly keeps the logits of the last position, as [batch, 1, vocabulary] or [batch, vocabulary].
func lastOnly(t *testing.T, path string, flat bool) string {
	dims := []onnx.Dim{{Value: -1, Param: "rows"}, {Value: 1}, {Value: 160}}
	if flat {
		dims = slices.Delete(dims, 1, 2)
	}
	return behind(t, path, onnx.Float, dims, func(g *onnx.Graph, raw *onnx.Value) *onnx.Node {
		index := onnx.NewInt64s("last", []int64{-1})
		if flat {
			index.Dims = []int64{}
		}
		return g.AddNode("Gather", []*onnx.Value{raw, g.AddInitializer(index)}, []*onnx.Value{g.NewValue("y")},
			onnx.IntAttr("axis", 1))
	})
}

// TestLastLogits generates with graphs that compute only the last position's logits.
func TestLastLogits(t *testing.T) {
	for _, name := range []string{"llama-kv-dynamo-fp32", "llama-ts-fp32"} {
		for _, flat := range []bool{false, true} {
			want := recordings(t)[name]
			g := open(t, lastOnly(t, modelPath(name), flat))
			r, err := g.Start(generate.Options{MaxTokens: 8}, want.Prompts...)
			must(t, err)
			for _, err := range r.Tokens(t.Context()) {
				must(t, err)
			}
			for i, s := range r.Sequences() {
				if !slices.Equal(s.IDs, want.Greedy[i][:8]) {
					t.Errorf("%s, flat %v, prompt %d: %v, want %v", name, flat, i, s.IDs, want.Greedy[i][:8])
				}
			}
			if len(r.Groups()) != 1 {
				t.Errorf("%s, flat %v: groups %v", name, flat, r.Groups())
			}
		}
	}
}

// TestLogitTypes reads logits of every type.
func TestLogitTypes(t *testing.T) {
	path := modelPath("positions-fp32")
	prompt := recordings(t)["positions-fp32"].Prompts[1]
	first := func(path string) []float32 {
		var row []float32
		o := generate.Options{MaxTokens: 1, Choose: func(_ int, logits []float32) (int64, error) {
			row = slices.Clone(logits)
			return 0, nil
		}}
		for _, err := range open(t, path).Generate(t.Context(), prompt, o) {
			must(t, err)
		}
		return row
	}
	want := first(path)
	for dt, tolerance := range map[onnx.DataType]float64{onnx.Double: 0, onnx.Float16: 1e-3, onnx.BFloat16: 8e-3} {
		dims := []onnx.Dim{{Value: -1}, {Value: -1}, {Value: 160}}
		got := first(behind(t, path, dt, dims, func(g *onnx.Graph, raw *onnx.Value) *onnx.Node {
			return g.AddNode("Cast", []*onnx.Value{raw}, []*onnx.Value{g.NewValue("y")}, onnx.IntAttr("to", int64(dt)))
		}))
		for i := range want {
			if d := math.Abs(float64(got[i] - want[i])); d > tolerance*math.Abs(float64(want[i]))+1e-6 ||
				len(got) != 160 {
				t.Fatalf("%s: logit %d is %g, want %g", dt, i, got[i], want[i])
			}
		}
	}
}
