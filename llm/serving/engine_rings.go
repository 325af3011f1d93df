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

// joinTables makes all layers read one table, until makeRings.
func (d *decoder) joinTables() {
	if d.paged.Windowed == nil {
		return
	}
	for _, n := range d.g.Nodes {
		if isPagedAttention(n) && n.Input(fused.PagedAttentionBlockTable) == d.paged.Windowed.Value {
			d.windowed = append(d.windowed, n)
		}
	}
	d.edit.Reread(d.paged.Windowed.Value, d.paged.Table.Value)
}

// makeRings makes layers with windows read a second table if their rings are shorter than a sequence.
func (d *decoder) makeRings(context int64) error {
	if d.paged.Windowed == nil {
		return nil
	}
	w, table := genAIWindow{Size: d.paged.Window}, d.paged.Windowed.Value
	for i := range len(d.Caches) / 2 {
		for _, n := range d.windowed {
			if n.Input(fused.PagedAttentionKeyCache) == d.Caches[2*i].Past.Value && !slices.Contains(w.Layers, i) {
				w.Layers = append(w.Layers, i)
			}
		}
	}
	block := d.paged.Block
	if (engineChunk+w.Size-1+block-1)/block*block >= context {
		d.edit.RemovePort(d.g, table)
		return nil
	}
	for _, n := range d.windowed {
		d.edit.SetInput(n, fused.PagedAttentionBlockTable, table)
	}
	d.window = &w
	if table.Name == engineWindowed {
		return nil
	}
	return d.edit.Rename(d.g, table, engineWindowed)
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
