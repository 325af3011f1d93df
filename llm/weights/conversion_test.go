package weights_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestFusedQKV has two heads of one row each, grouped as q0 q1 k0 k1 v0 v1 in the file.
func TestFusedQKV(t *testing.T) {
	const name = "gpt_neox.layers.0.attention.query_key_value.weight"
	metadata := map[string]any{"general.architecture": "gptneox", "gptneox.attention.head_count": 2}
	path := file(t, "m.gguf", metadata, named("blk.0.attn_qkv.weight", counted(0, 6, 2)))
	got, r := load(t, reader(t, name, "MatMul", []int64{2, 6}), open(t, path), weights.MatchOptions{})
	if r.Loaded != 1 || r.Keys[0].QKVHeads != 2 ||
		!slices.Equal(values(t, got, name), []float32{0, 4, 8, 2, 6, 10, 1, 5, 9, 3, 7, 11}) {
		t.Errorf("%+v, %v", r, values(t, got, name))
	}
}

// TestFoldedNorm loads the factor of an unnamed norm, which an exporter computed from the weight that config.json
// implies.
func TestFoldedNorm(t *testing.T) {
	for modelType, want := range map[string][]float32{"gemma2": {6, 7}, "llama": {5, 6}, "": nil} {
		m := reader(t, "onnx::Mul_7", "Mul", []int64{2})
		m.Graph.Nodes[0].Name = "/model/layers.0/input_layernorm/Mul_1"
		path := file(t, "m.safetensors", nil, named("model.layers.0.input_layernorm.weight", counted(5, 2)))
		if modelType != "" {
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), "config.json"),
				[]byte(`{"model_type": "`+modelType+`"}`), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		got, r := load(t, m, open(t, filepath.Dir(path)), weights.MatchOptions{})
		switch {
		case want == nil && (len(r.Missing) != 1 || !strings.Contains(r.Missing[0].Reason, "config.json")):
			t.Errorf("no config.json: %+v", r)
		case want != nil && (r.Loaded != 1 || !slices.Equal(values(t, got, "onnx::Mul_7"), want)):
			t.Errorf("%s: %+v", modelType, r)
		}
	}
}

// TestPlace has two initializers at one place of the missing data, one with an unknown name. The elements are stored
// once, and strip finds that again.
func TestPlace(t *testing.T) {
	m := reader(t, "model.embed_tokens.weight", "Transpose, MatMul", []int64{300, 2})
	other := m.Graph.NewValue("z")
	m.Graph.AddNode("Identity", []*onnx.Value{absent(t, m.Graph, "anything", 300, 2)}, []*onnx.Value{other})
	m.Graph.AddOutput(other)
	path := file(t, "m.safetensors", nil, named("model.embed_tokens.weight", counted(0, 300, 2)))
	got, r := load(t, m, open(t, path), weights.MatchOptions{})
	a, b := got.Graph.Value("anything").Const.External, got.Graph.Value("model.embed_tokens.weight").Const.External
	if r.Loaded != 2 || r.Keys[0].Rule != weights.ByPlace || a == nil || b == nil || *a != *b || r.Elements != 600 {
		t.Errorf("%+v at %+v and %+v", r, a, b)
	}
	s, err := weights.Strip(got, weights.StripOptions{Location: "x", All: true})
	if err != nil || len(s.Stripped) != 2 || s.Bytes != 2400 || s.Stripped[0].Offset != s.Stripped[1].Offset ||
		s.Stripped[1].Tied == "" {
		t.Errorf("%+v (%v)", s, err)
	}
}
