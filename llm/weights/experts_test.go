package weights_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestExperts covers experts stored individually, stacked, and with gate and up fused, in graph and file.
func TestExperts(t *testing.T) {
	const in = "model.layers.0.mlp.experts."
	gguf := map[string]any{"general.architecture": "qwen3moe"}
	stacks := []checkpoints.Tensor{named("blk.0.ffn_gate_exps.weight", counted(0, 2, 1, 2)),
		named("blk.0.ffn_up_exps.weight", counted(10, 2, 1, 2))}
	single := []checkpoints.Tensor{named(in+"0.gate_proj.weight", counted(0, 1, 2)),
		named(in+"1.gate_proj.weight", counted(2, 1, 2)),
		named(in+"0.up_proj.weight", counted(10, 1, 2)), named(in+"1.up_proj.weight", counted(12, 1, 2))}
	mixtral := slices.Clone(single)
	for i := range mixtral {
		mixtral[i].Name = strings.NewReplacer("mlp", "block_sparse_moe", "gate_proj", "w1", "up_proj",
			"w3").Replace(mixtral[i].Name)
	}
	for _, c := range []struct {
		name string
		dims []int64
		path string
		want []float32
	}{
		{in + "1.gate_proj.weight", []int64{2, 1}, file(t, "m.gguf", gguf, stacks...), []float32{2, 3}},
		{in + "gate_up_proj", []int64{2, 2, 2}, file(t, "m.gguf", gguf, stacks...),
			[]float32{0, 10, 1, 11, 2, 12, 3, 13}},
		{in + "gate_up_proj", []int64{2, 2, 2}, file(t, "m.safetensors", nil, single...),
			[]float32{0, 10, 1, 11, 2, 12, 3, 13}},
		{in + "gate_up_proj", []int64{2, 2, 2}, file(t, "m.safetensors", nil, mixtral...),
			[]float32{0, 10, 1, 11, 2, 12, 3, 13}},
		{in + "up_proj", []int64{2, 2, 1}, file(t, "m.safetensors", nil, single...), []float32{10, 11, 12, 13}},
		{in + "gate_up_proj", []int64{2, 2, 2},
			file(t, "m.safetensors", nil, named(in+"gate_up_proj", counted(0, 2, 2, 2))),
			[]float32{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		got, r := load(t, reader(t, c.name, "MatMul", c.dims), open(t, c.path), weights.MatchOptions{})
		if r.Loaded != 1 {
			t.Errorf("%s from %s: %+v", c.name, c.path, r)
		} else if x := values(t, got, c.name); !slices.Equal(x, c.want) {
			t.Errorf("%s from %s: %v, not %v", c.name, c.path, x, c.want)
		}
	}
}

// TestExpertsByModule loads unnamed stacks of a known module, whose shape may or may not identify them.
func TestExpertsByModule(t *testing.T) {
	const in = "model.layers.0.mlp.experts."
	for _, c := range []struct {
		dims, down []int64
		loaded     int
	}{
		{[]int64{2, 4, 3}, []int64{2, 3, 2}, 1},
		{[]int64{2, 4, 4}, []int64{2, 4, 4}, 0},
	} {
		m := reader(t, "val_1", "MatMul", c.dims)
		m.Graph.Nodes[0].Metadata = []onnx.Entry{
			{Key: "pkg.torch.onnx.name_scopes",
				Value: "['', 'model.layers.0.mlp', 'model.layers.0.mlp.experts', 'bmm']"}}
		path := file(t, "m.safetensors", nil, named(in+"gate_up_proj", counted(0, c.dims...)),
			named(in+"down_proj", counted(0, c.down...)))
		_, r := load(t, m, open(t, path), weights.MatchOptions{})
		if r.Loaded != c.loaded || c.loaded == 0 && !strings.Contains(r.Missing[0].Reason, "use --map") {
			t.Errorf("%v: %+v", c.dims, r)
		}
	}
}
