package serving

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// The Engine of onnxruntime-genai runs the tokens of many sequences together: prompts in chunks, and one token of each
// other sequence. Its inputs are those of a model of apply --cache paged. It binds one tensor to past and present of a
// pool, and all pools have one shape. onnxruntime's PagedAttention takes one more input, attention_metadata on the
// host. Without it, each node copies the lengths from the GPU and waits.

// EngineOptions are the sizes of genai's Engine.
type EngineOptions struct {
	MaxBatch int64 // the most sequences that run together
	Blocks   int64 // the blocks of each pool; 0: as many as engineMemory has room for
}

// engineMemory is the part of a GPU's free memory that the pools take, as in folders of genai's model builder.
const engineMemory = 0.6

// Inputs of the Engine.
const (
	engineStarts   = "cumulative_sequence_lengths"
	enginePast     = "past_sequence_lengths"
	engineTable    = "block_table"
	engineMetadata = "attention_metadata"
)

var engineNames = []string{engineStarts, enginePast, engineTable, engineWindowed, engineMetadata}

// Inputs of onnxruntime's PagedAttention: the first table of a rotation, and attention_metadata. The inputs before are
// those of mojo.PagedAttention.
const (
	cosInput      = 8
	metadataInput = 16
)

// Names of the sizes in the Engine's shapes. The Engine takes logits for one row of each sequence if their first axis
// is batch_size, and for one row of each token otherwise.
const (
	sizeBatch  = "batch_size"
	sizeTokens = "num_tokens"
)

// genAIEngine is the section engine of genai_config.json.
type genAIEngine struct {
	DynamicBatching genAIBatching `json:"dynamic_batching"`
}

type genAIBatching struct {
	BlockSize    int64   `json:"block_size"`
	MaxBatchSize int64   `json:"max_batch_size"`
	NumBlocks    int64   `json:"num_blocks,omitempty"`
	GPUMemory    float64 `json:"gpu_utilization_factor,omitempty"` // of the free memory; required without num_blocks
}

// genAIStates names the layers that keep one kind of state.
type genAIStates struct {
	Kind   string `json:"kind"`
	Layers []int  `json:"layer_ids"`
}

// readPaged finds out how to feed a model with pools.
func readPaged(m *onnx.Model) (*decoder, error) {
	d := &decoder{g: m.Graph}
	d.dropUnused()
	var err error
	if d.paged, err = generate.DescribePaged(m); err != nil {
		return nil, err
	}
	if d.Signature = d.paged.Signature; len(d.Logits.Dims) != 2 || d.vocabulary() <= 0 {
		return nil, fmt.Errorf("%s: logits must have the shape [tokens, vocabulary] or [sequences, vocabulary], but "+
			"it has %s", m.Path, d.Logits)
	}
	return d, nil
}

// fitEngine changes a model with pools to take the Engine's inputs.
func (d *decoder) fitEngine(f *GenAIFolder) error {
	f.Batch = batchAny
	for _, p := range d.Others {
		return fmt.Errorf("genai's Engine does not provide input %s: export the model without it", p)
	}
	if err := d.orderPools(); err != nil {
		return err
	}
	d.joinTables()
	if d.onlyOnCUDA() {
		if err := d.passMetadata(); err != nil {
			return err
		}
		if err := d.fixTables(f.ContextLength); err != nil {
			return err
		}
	}
	if err := d.makeRings(f.ContextLength); err != nil {
		return err
	}
	return d.nameForEngine()
}

// orderPools sorts the pools by layer, keys before values, in the order of the nodes that read them.
func (d *decoder) orderPools() error {
	var sorted []generate.Cache
	seen := map[*onnx.Value]bool{}
	for _, n := range d.g.Nodes {
		if n.OpType != fused.PagedAttentionName || seen[n.Input(fused.PagedAttentionKeyCache)] {
			continue
		}
		for _, i := range []int{fused.PagedAttentionKeyCache, fused.PagedAttentionValueCache} {
			v := n.Input(i)
			at := slices.IndexFunc(d.Caches, func(c generate.Cache) bool { return c.Past.Value == v })
			if at < 0 {
				return fmt.Errorf("node %q reads a pool that is not an input of the model", n.Label())
			}
			seen[v], sorted = true, append(sorted, d.Caches[at])
		}
	}
	if len(sorted) != len(d.Caches) {
		return fmt.Errorf("genai's Engine needs keys and values of each layer, but the model has %d pools, and its "+
			"nodes read %d", len(d.Caches), len(sorted))
	}
	first := sorted[0].Past
	for _, c := range sorted {
		if !slices.Equal(c.Past.Dims[1:], first.Dims[1:]) || c.Past.DataType != first.DataType {
			return fmt.Errorf("genai's Engine keeps keys and values of all layers in pools of one shape, but the "+
				"model has %s and %s", first, c.Past)
		}
	}
	d.Caches = sorted
	return nil
}

// onlyOnCUDA reports whether the model has onnxruntime's PagedAttention.
func (d *decoder) onlyOnCUDA() bool {
	return d.paged != nil && slices.ContainsFunc(d.g.Nodes, isOnnxruntimes)
}

func isOnnxruntimes(n *onnx.Node) bool {
	return n.Domain == onnx.Microsoft && n.OpType == fused.PagedAttentionName
}

// passMetadata gives attention_metadata to all nodes that take it.
func (d *decoder) passMetadata() error {
	v := d.edit.AddInput(d.g, engineMetadata, onnx.Type{DataType: onnx.Int32, HasShape: true,
		Dims: []onnx.Dim{{Value: 3}}})
	for _, n := range d.g.Nodes {
		if isOnnxruntimes(n) {
			d.edit.SetInput(n, metadataInput, v)
		}
	}
	return d.edit.Rename(d.g, v, engineMetadata) // an error if another value has the name
}

// nameForEngine sets the names and types of inputs and outputs.
func (d *decoder) nameForEngine() error {
	p := d.paged
	symbol := func(name string) onnx.Dim { return onnx.Dim{Value: -1, Param: name} }
	batch, rows := symbol(sizeBatch), symbol(sizeTokens)
	if one := p.Past.Dims; len(one) == 1 && d.Logits.Dims[0] == one[0] && d.Logits.Dims[0] != d.IDs.Dims[0] {
		rows = batch
	}
	type port struct {
		generate.Port
		name  string
		given onnx.DataType
		dims  []onnx.Dim
	}
	ports := []port{
		{d.IDs, genaiIDs, onnx.Int64, []onnx.Dim{symbol(sizeTokens)}},
		{p.Cumulative, engineStarts, onnx.Int32, []onnx.Dim{symbol(sizeBatch + " + 1")}},
		{p.Past, enginePast, onnx.Int32, []onnx.Dim{batch}},
		{p.Table, engineTable, onnx.Int32, []onnx.Dim{batch, symbol("max_num_blocks")}},
		{d.Logits, genaiLogits, d.Logits.DataType, []onnx.Dim{rows, {Value: d.vocabulary()}}},
	}
	if d.window != nil {
		v := d.g.Value(engineWindowed)
		d.edit.SetType(v, onnx.Type{DataType: onnx.Int32, HasShape: true, Dims: ports[3].dims})
	}
	for i, c := range d.Caches {
		blocks := "num_blocks"
		if d.rings(i / 2) {
			blocks += "_windowed"
		}
		form, dims := layerNames[i%2], append([]onnx.Dim{symbol(blocks)}, c.Past.Dims[1:]...)
		ports = append(ports, port{c.Past, layerName(form.past, i/2), c.Past.DataType, dims},
			port{c.Present, layerName(form.present, i/2), c.Past.DataType, dims})
	}
	for _, x := range ports {
		d.cast(&x.Port, x.given)
		x.Dims = x.dims
		d.declare(x.Port)
		if err := d.edit.Rename(d.g, x.Value, x.name); err != nil {
			return err
		}
	}
	return d.edit.Finish()
}

// engineConfig returns the section engine of the configuration.
func (d *decoder) engineConfig(o EngineOptions) *genAIEngine {
	b := genAIBatching{BlockSize: d.paged.Block, MaxBatchSize: o.MaxBatch, NumBlocks: o.Blocks}
	if o.Blocks == 0 {
		b.GPUMemory = engineMemory
	}
	return &genAIEngine{b}
}

// stateGroups names all layers as layers with pools.
func (d *decoder) stateGroups() []genAIStates {
	g := genAIStates{Kind: "paged_kv"}
	for i := range len(d.Caches) / 2 {
		g.Layers = append(g.Layers, i)
	}
	return []genAIStates{g}
}
