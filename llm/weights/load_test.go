package weights_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/llm/weights/checkpoint"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// bundled reads a model from the folder models.
func bundled(t *testing.T, name string) *onnx.Model {
	t.Helper()
	m, err := onnx.Read(filepath.Join("..", "..", "models", name+".onnx"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// stripped writes the model's graph without weights, even small ones, and reads it.
func stripped(t *testing.T, name string) *onnx.Model {
	t.Helper()
	m := bundled(t, name)
	r, err := weights.Strip(m, weights.StripOptions{Location: "absent.bin", Over: 100})
	if err != nil || len(r.Stripped) == 0 {
		t.Fatalf("%v, %d stripped", err, len(r.Stripped))
	}
	path := filepath.Join(t.TempDir(), "graph.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	g, err := onnx.Read(path, onnx.AllowMissingData())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func open(t *testing.T, paths ...string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(paths...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// load loads and writes, and returns the written model.
func load(t *testing.T, g *onnx.Model, c *checkpoint.Checkpoint, o weights.MatchOptions) (*onnx.Model,
	*weights.Report) {
	t.Helper()
	p, err := weights.Match(g, c, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := onnx.Write(path, g, onnx.ExternalDataOver(1023)); err != nil {
		t.Fatal(err)
	}
	m, err := onnx.Read(path, onnx.AllowMissingData())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, p.Report()
}

// sameWeights requires the original's bytes in each initializer.
func sameWeights(t *testing.T, what string, got, want *onnx.Model) {
	t.Helper()
	for _, v := range want.Graph.Initializers() {
		g := got.Graph.Value(v.Name)
		if g == nil || g.Const == nil {
			t.Errorf("%s: %s is gone", what, v.Name)
			continue
		}
		a, errA := v.Const.Bytes()
		b, errB := g.Const.Bytes()
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %s differs (%v, %v)", what, v.Name, errA, errB)
		}
	}
}

// TestStripLoad strips exported Llamas and restores the weights from both checkpoint formats, by module names in
// metadata (dynamo, transformers) and in node names (TorchScript).
func TestStripLoad(t *testing.T) {
	for _, name := range []string{"llama-kv-dynamo-fp32", "llama-ts-fp32"} {
		original := bundled(t, name)
		tensors, err := checkpoints.Llama(original)
		if err != nil || len(tensors) != 21 {
			t.Fatalf("%s: %d tensors (%v)", name, len(tensors), err)
		}
		dir := t.TempDir()
		metadata, list := checkpoints.LlamaGGUF(tensors, 4, 2)
		for path, write := range map[string]func(path string) error{
			"m.safetensors": func(path string) error { return checkpoints.Safetensors(path, tensors) },
			"m.gguf":        func(path string) error { return checkpoints.GGUF(path, metadata, list) },
		} {
			path = filepath.Join(dir, path)
			if err := write(path); err != nil {
				t.Fatal(err)
			}
			got, r := load(t, stripped(t, name), open(t, path), weights.MatchOptions{})
			if r.Expected != 21 || r.Loaded != 21 || len(r.Missing)+len(r.Unexpected)+len(r.Present) != 0 {
				t.Errorf("%s from %s: expected %d, loaded %d, missing %v, unexpected %v", name, path, r.Expected,
					r.Loaded, r.Missing, r.Unexpected)
			}
			heads := 0
			for _, k := range r.Keys {
				if k.RopeHeads > 0 {
					heads++
				}
				if k.Transposed == (k.Rule == weights.ByName) || k.Cast {
					t.Errorf("%s from %s: %+v", name, path, k)
				}
			}
			if want := 4 * strings.Count(path, "gguf"); heads != want {
				t.Errorf("%s from %s: rows of %d keys were put back, not %d", name, path, heads, want)
			}
			sameWeights(t, name+" from "+path, got, original)
		}
	}
}

// TestRoles drops all names, so that only the roles of the weights identify them.
func TestRoles(t *testing.T) {
	original := bundled(t, "llama-kv-dynamo-fp32")
	tensors, err := checkpoints.Llama(original)
	if err != nil {
		t.Fatal(err)
	}
	g := stripped(t, "llama-kv-dynamo-fp32")
	for _, n := range g.Graph.Nodes {
		n.Name, n.Metadata = "", nil
	}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := checkpoints.Safetensors(path, tensors); err != nil {
		t.Fatal(err)
	}
	got, r := load(t, g, open(t, path), weights.MatchOptions{})
	byRole := 0
	for _, k := range r.Keys {
		if k.Rule == weights.ByRole {
			byRole++
		}
	}
	if r.Loaded != 21 || byRole != 15 {
		t.Errorf("loaded %d, by role %d: %v", r.Loaded, byRole, r.Missing)
	}
	sameWeights(t, "by role", got, original)
}

// TestPlanted plants a missing, an extra and a misshapen tensor.
func TestPlanted(t *testing.T) {
	tensors, err := checkpoints.Llama(bundled(t, "llama-kv-dynamo-fp32"))
	if err != nil {
		t.Fatal(err)
	}
	var planted []checkpoints.Tensor
	for _, x := range tensors {
		switch x.Name {
		case "model.layers.1.mlp.up_proj.weight":
			continue
		case "model.layers.0.self_attn.k_proj.weight":
			x.Dims = []int64{x.Dims[0] / 2, x.Dims[1]}
			x.Data = x.Data[:len(x.Data)/2]
		}
		planted = append(planted, x)
	}
	planted = append(planted, checkpoints.Tensor{Name: "model.layers.2.input_layernorm.weight", Dims: []int64{2},
		Data: []float32{1, 2}})
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := checkpoints.Safetensors(path, planted); err != nil {
		t.Fatal(err)
	}
	got, r := load(t, stripped(t, "llama-kv-dynamo-fp32"), open(t, path), weights.MatchOptions{})
	if r.Expected != 21 || r.Loaded != 19 || len(r.Missing) != 2 || len(r.Mismatched()) != 1 ||
		r.Mismatched()[0].Tensor != "model.layers.0.self_attn.k_proj.weight" {
		t.Errorf("expected %d, loaded %d, missing %+v", r.Expected, r.Loaded, r.Missing)
	}
	want := []string{"model.layers.0.self_attn.k_proj.weight", "model.layers.2.input_layernorm.weight"}
	if len(r.Unexpected) != 2 || r.Unexpected[0].Name != want[0] || r.Unexpected[1].Name != want[1] {
		t.Errorf("unexpected %+v", r.Unexpected)
	}
	for _, k := range r.Missing {
		if v := got.Graph.Value(k.Name); v.Const.External == nil || v.Const.External.Location != "absent.bin" {
			t.Errorf("%s does not refer to what is missing any more", k.Name)
		}
	}
}

// TestTwice loads a tensor that is in two files.
func TestTwice(t *testing.T) {
	dir := t.TempDir()
	x := []checkpoints.Tensor{{Name: "x", Dims: []int64{1}, Data: []float32{1}}}
	for _, name := range []string{"a.safetensors", "b.safetensors"} {
		if err := checkpoints.Safetensors(filepath.Join(dir, name), x); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := checkpoint.Open(dir); err == nil || !strings.Contains(err.Error(), `tensor "x" is in`) {
		t.Errorf("error %v", err)
	}
	if _, err := checkpoint.Open(filepath.Join(dir, "a.safetensors"),
		filepath.Join(dir, "a.safetensors")); err == nil ||
		!strings.Contains(err.Error(), "given twice") {
		t.Errorf("error %v", err)
	}
	if err := checkpoints.Safetensors(filepath.Join(dir, "model.safetensors"), x); err != nil {
		t.Fatal(err)
	}
	if c := open(t, dir); len(c.Files) != 1 || filepath.Base(c.Files[0]) != "model.safetensors" {
		t.Errorf("files %v", c.Files)
	}
	if err := os.WriteFile(filepath.Join(dir, "c.bin"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Open(filepath.Join(dir, "c.bin")); err == nil {
		t.Error("no error for a file of another kind")
	}
}

// TestShards opens a checkpoint split in two, by its folder and by its index.
func TestShards(t *testing.T) {
	original := bundled(t, "llama-kv-dynamo-fp32")
	tensors, err := checkpoints.Llama(original)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	places := map[string]string{}
	for i, part := range [][]checkpoints.Tensor{tensors[:9], tensors[9:]} {
		name := []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}[i]
		if err := checkpoints.Safetensors(filepath.Join(dir, name), part); err != nil {
			t.Fatal(err)
		}
		for _, x := range part {
			places[x.Name] = name
		}
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{}, "weight_map": places})
	if err != nil {
		t.Fatal(err)
	}
	index := filepath.Join(dir, "model.safetensors.index.json")
	if err := os.WriteFile(index, text, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, index} {
		c := open(t, path)
		got, r := load(t, stripped(t, "llama-kv-dynamo-fp32"), c, weights.MatchOptions{})
		if r.Loaded != 21 || len(c.Files) != 2 {
			t.Errorf("%s: loaded %d of %d files", path, r.Loaded, len(c.Files))
		}
		sameWeights(t, path, got, original)
	}
}

// TestStatistics covers numbers that are not finite, and numbers whose squares would hide their differences.
func TestStatistics(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	path := filepath.Join(t.TempDir(), "m.safetensors")
	x := []float32{0, 1000000, 1000001, nan, inf, -inf, 0}
	if err := checkpoints.Safetensors(path, []checkpoints.Tensor{{Name: "x", Dims: []int64{7}, Data: x},
		{Name: "y", Dims: []int64{3}, Data: []float32{1e6, 1e6 + 1, 1e6 + 2}},
		{Name: "none", Dims: []int64{0}}}); err != nil {
		t.Fatal(err)
	}
	c := open(t, path)
	s, err := c.Tensor("x").Statistics()
	if err != nil || s.Finite != 4 || s.Zeros != 2 || s.NaN != 1 || s.Inf != 2 || s.Min != 0 || s.Max != 1000001 ||
		s.Mean != 500000.25 {
		t.Errorf("%+v (%v)", s, err)
	}
	if s, err = c.Tensor("y").Statistics(); err != nil || math.Abs(s.Std-math.Sqrt(2./3)) > 1e-12 || s.Mean != 1e6+1 {
		t.Errorf("%+v (%v)", s, err)
	}
	if s, err = c.Tensor("none").Statistics(); err != nil || s.Finite != 0 || !math.IsNaN(s.Mean) {
		t.Errorf("%+v (%v)", s, err)
	}
}
