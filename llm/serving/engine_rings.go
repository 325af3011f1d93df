package serving

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// A layer with a window never reads further back than its window. The Engine gives such layers a ring of blocks for
// each sequence, which a second table repeats: the op finds each position where the first table would have it, and new
// keys overwrite those that left the window. A step writes a chunk of a prompt at once, so a ring holds a window and a
// chunk. At least one layer must keep whole sequences.

// engineWindowed is the input with the blocks of layers with a window.
const engineWindowed = "block_table_windowed"

// engineChunk is the most tokens of a prompt per step of a model with rings.
const engineChunk = 512

// genAIWindow is the section sliding_window of genai_config.json.
type genAIWindow struct {
	Size       int64 `json:"window_size"`
	Slide      bool  `json:"slide_key_value_cache"`
	SlideInput bool  `json:"slide_inputs"`
	Layers     []int `json:"layers"`
}

// isPagedAttention reports whether a node attends to pools.
func isPagedAttention(n *onnx.Node) bool {
	return n.OpType == fused.PagedAttentionName && (n.Domain == fused.Domain || n.Domain == onnx.Microsoft)
}

// windowOf returns the keys that a token sees in a node, 0 for all.
func windowOf(n *onnx.Node) int64 {
	if isOnnxruntimes(n) {
		return max(0, n.AttrInt("local_window_size", 0))
	}
	return fused.Read[fused.PagedAttention](n.Attributes).Window
}

// makeRings makes layers with windows read a second table if their rings are shorter than a sequence.
func (d *decoder) makeRings(context int64) error {
	w, windowed := genAIWindow{}, map[*onnx.Value]bool{} // pools
	for _, n := range d.g.Nodes {
		if !isPagedAttention(n) {
			continue
		}
		keys := n.Input(fused.PagedAttentionKeyCache)
		if size := windowOf(n); size > 0 {
			w.Size, windowed[keys] = max(w.Size, size), true
		}
	}
	for _, n := range d.g.Nodes { // layers that share pools
		if isPagedAttention(n) && windowOf(n) == 0 {
			delete(windowed, n.Input(fused.PagedAttentionKeyCache))
		}
	}
	for i := range len(d.Caches) / 2 {
		if windowed[d.Caches[2*i].Past.Value] {
			w.Layers = append(w.Layers, i)
		}
	}
	block := d.paged.Block
	ring := (engineChunk + w.Size - 1 + block - 1) / block * block
	if len(w.Layers) == 0 || len(w.Layers) == len(d.Caches)/2 || ring >= context {
		return nil
	}
	t, _ := d.paged.Table.Value.Type()
	table := d.edit.AddInput(d.g, engineWindowed, t)
	if err := d.edit.Rename(d.g, table, engineWindowed); err != nil {
		return err
	}
	for _, n := range d.g.Nodes {
		if isPagedAttention(n) && windowed[n.Input(fused.PagedAttentionKeyCache)] {
			d.edit.SetInput(n, fused.PagedAttentionBlockTable, table)
		}
	}
	d.window = &w
	return nil
}

// rings reports whether layer i has rings.
func (d *decoder) rings(i int) bool { return d.window != nil && slices.Contains(d.window.Layers, i) }

// isOne reports whether a tensor is the number 1, without axes.
func isOne(t *onnx.Tensor) bool {
	if t == nil || t.DataType != onnx.Int64 || len(t.Dims) > 0 {
		return false
	}
	b, err := t.Bytes()
	return err == nil && slices.Equal(b, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// fixTables makes the tables of a rotation inside of onnxruntime's PagedAttention as long as a sequence may get, if
// they have rows for the blocks of the longest one. onnxruntime then computes them when it opens the model. The op
// does not check positions, so tables of a fixed length must be long enough.
func (d *decoder) fixTables(context int64) error {
	for _, n := range d.g.Nodes {
		if !isOnnxruntimes(n) || n.Input(cosInput) == nil {
			continue
		}
		t, _ := n.Input(cosInput).Type()
		if len(t.Dims) > 0 && t.Dims[0].Value > 0 && t.Dims[0].Value < context {
			return fmt.Errorf("a context of %d tokens is too long: the tables of node %q have rows for %d positions",
				context, n.Label(), t.Dims[0].Value)
		}
	}
	reads := map[*onnx.Value]bool{}
	var onlyTables func(v *onnx.Value) bool
	onlyTables = func(v *onnx.Value) bool {
		if known, seen := reads[v]; seen {
			return known
		}
		reads[v] = true
		for _, u := range v.Uses() {
			if isOnnxruntimes(u.Node) {
				reads[v] = reads[v] && (u.Index == cosInput || u.Index == cosInput+1)
				continue
			}
			for _, out := range u.Node.Outputs {
				reads[v] = reads[v] && (out == nil || onlyTables(out))
			}
		}
		reads[v] = reads[v] && !v.IsOutput()
		return reads[v]
	}
	for _, shape := range slices.Clone(d.paged.Table.Value.Uses()) {
		if !shape.Node.Is("Shape") || len(shape.Node.Attributes) > 0 {
			continue
		}
		for _, u := range slices.Clone(shape.Node.Outputs[0].Uses()) {
			if !u.Node.Is("Gather") || !isOne(u.Node.Input(1).Constant()) || !onlyTables(u.Node.Outputs[0]) {
				continue
			}
			columns := onnx.NewInt64s("most_columns", []int64{(context + d.paged.Block - 1) / d.paged.Block})
			columns.Dims = []int64{}
			d.edit.Reread(u.Node.Outputs[0], d.edit.AddInitializer(d.g, columns))
			d.edit.Drop(u.Node)
		}
		if len(shape.Node.Outputs[0].Uses()) == 0 {
			d.edit.Drop(shape.Node)
		}
	}
	return nil
}
