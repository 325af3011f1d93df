package serving

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// decoder is a decoder with a cache that is being changed for an engine.
type decoder struct {
	*generate.Signature                 // Caches has only keys and values
	paged               *generate.Paged // nil unless the caches are pools for genai's Engine
	windowed            []*onnx.Node    // attention that read the second table
	window              *genAIWindow    // of the layers with rings of blocks, or nil
	states              []generate.Cache
	edit                edit.Change
	g                   *onnx.Graph
	buffers             bool        // the caches are written in place
	fresh               *onnx.Value // the numbers of new tokens, once they are computed
}

// readDecoder finds out how to feed a model. It drops unused inputs, because a caller would have to provide them.
func readDecoder(m *onnx.Model) (*decoder, error) {
	d := &decoder{g: m.Graph}
	d.dropUnused()
	s, err := generate.Describe(m)
	if err != nil {
		return nil, err
	}
	d.Signature = s
	d.splitStates()
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	d.buffers = len(d.Caches) > 0 && d.Caches[0].InPlace
	return d, nil
}

func (d *decoder) dropUnused() {
	for _, v := range slices.Backward(slices.Clone(d.g.Inputs)) {
		if v.Const == nil {
			d.edit.RemovePort(d.g, v) // only if it is unused
		}
	}
}

func (d *decoder) check() error {
	if len(d.Caches)+len(d.states) == 0 {
		return errors.New("it has no cache of keys and values and would compute the whole text again for each " +
			"token: export it with past key values")
	}
	if d.Input(roles.CacheFlag) != nil {
		return fmt.Errorf("input %q chooses between a branch with a past and one without: use apply --cache static, "+
			"which keeps only the branch with a past", d.Input(roles.CacheFlag).Value.Name)
	}
	for _, c := range d.Caches {
		if c.InPlace != d.Caches[0].InPlace {
			return fmt.Errorf("cache %s is written in place, but %s is not", d.Caches[0].Past, c.Past)
		}
	}
	if len(d.Logits.Dims) != 3 || d.vocabulary() <= 0 {
		return fmt.Errorf("logits must have the shape [batch, sequence, vocabulary], but it has %s", d.Logits)
	}
	if len(d.IDs.Dims) != 2 {
		return fmt.Errorf("token ids must have the shape [batch, sequence], but it has %s", d.IDs)
	}
	return nil
}

// vocabulary returns the number of logits.
func (d *decoder) vocabulary() int64 {
	if n := d.Logits.Dims[len(d.Logits.Dims)-1].Value; n > 0 {
		return n
	}
	return d.Vocabulary
}

// lastOnly reports whether the model computes only the logits of the last position.
func (d *decoder) lastOnly() bool { return d.Logits.Dims[1].Value == 1 }

// room returns the fixed number of tokens of the buffers, 0 for any number.
func (d *decoder) room() int64 {
	if !d.buffers {
		return 0
	}
	return max(0, d.Caches[0].Past.Dims[d.Caches[0].Tokens].Value)
}

// cast casts an input of type given to its own type for its readers.
func (d *decoder) cast(p *generate.Port, given onnx.DataType) {
	if p.DataType == given {
		return
	}
	own := d.g.NewValue(p.Value.Name + "_cast")
	d.edit.Reread(p.Value, own)
	d.edit.AddNode(d.g, "Cast", []*onnx.Value{p.Value}, []*onnx.Value{own}, onnx.IntAttr("to", int64(p.DataType)))
	p.DataType = given
}

// declare writes the type of a port to the model.
func (d *decoder) declare(p generate.Port) {
	d.edit.SetType(p.Value, onnx.Type{DataType: p.DataType, HasShape: true, Dims: p.Dims})
}

// node adds a standard node with one output.
func (d *decoder) node(op, name string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	v := d.g.NewValue(name)
	d.edit.AddNode(d.g, op, inputs, []*onnx.Value{v}, attrs...).Name = v.Name
	return v
}

func (d *decoder) numbers(name string, list ...int64) *onnx.Value {
	return d.edit.AddInitializer(d.g, onnx.NewInt64s(name, list))
}

// filled adds a tensor that holds one number x and has as many dimensions as dims.
func (d *decoder) filled(name string, dims []onnx.Dim, x int64) *onnx.Value {
	t := onnx.NewInt64s(name, []int64{x})
	t.Dims = make([]int64, len(dims))
	for i := range t.Dims {
		t.Dims[i] = 1
	}
	return d.edit.AddInitializer(d.g, t)
}

// size computes a dimension of a value, [1].
func (d *decoder) size(v *onnx.Value, axis int64) *onnx.Value {
	shape := d.node("Shape", v.Name+"_shape", []*onnx.Value{v})
	return d.node("Gather", v.Name+"_size", []*onnx.Value{shape, d.numbers("axis", axis)})
}

// give makes the readers of an input read v, of any integer type, and drops the input.
func (d *decoder) give(p generate.Port, v *onnx.Value) {
	v = d.node("Cast", p.Value.Name+"_given", []*onnx.Value{v}, onnx.IntAttr("to", int64(p.DataType)))
	d.edit.Reread(p.Value, v)
	d.edit.RemovePort(d.g, p.Value)
	d.Others = slices.DeleteFunc(d.Others, func(q generate.Port) bool { return q.Value == p.Value })
}

// maskBuffers replaces a mask input by a computed mask of the buffers, with one for each of a row's tokens.
func (d *decoder) maskBuffers(mask generate.Port, tokens *onnx.Value) {
	room := d.node("Squeeze", "buffer_room", []*onnx.Value{d.size(d.Caches[0].Past.Value, 2)})
	slots := d.node("Range", "buffer_slots", []*onnx.Value{d.filled("first_slot", nil, 0), room,
		d.filled("slot_step", nil, 1)})
	column := d.node("Unsqueeze", "row_tokens_column", []*onnx.Value{tokens, d.numbers("column_axis", 1)})
	d.give(mask, d.node("Less", "slots_filled", []*onnx.Value{slots, column}))
}

// newTokens computes the number of new tokens per row, [batch]. It counts the ids: a Shape would put the size on the
// host, and copying it to a GPU keeps a run from becoming a CUDA graph.
func (d *decoder) newTokens() *onnx.Value {
	if d.fresh != nil {
		return d.fresh
	}
	d.fresh = d.rowSums("new_tokens_of_rows", d.onePerID())
	return d.fresh
}

// onePerID computes ones in the shape of the ids.
func (d *decoder) onePerID() *onnx.Value {
	ids := d.node("Cast", "ids_as_int64", []*onnx.Value{d.IDs.Value}, onnx.IntAttr("to", int64(onnx.Int64)))
	return d.node("Add", "one_for_each_id", []*onnx.Value{d.node("Sub", "zero_for_each_id", []*onnx.Value{ids, ids}),
		d.numbers("one_token", 1)})
}

// rowSums computes the sums of the rows of [batch, n], [batch].
func (d *decoder) rowSums(name string, x *onnx.Value) *onnx.Value {
	return d.node("ReduceSum", name, []*onnx.Value{x, d.numbers("row_axis", 1)}, onnx.IntAttr("keepdims", 0))
}

// HasFusedOps reports whether a model has ops of the kernel library.
func HasFusedOps(m *onnx.Model) bool { return fusedOps(m) > 0 }

// fusedOps returns the number of fused ops in a model.
func fusedOps(m *onnx.Model) (n int) {
	for _, g := range m.Graphs() {
		for _, node := range g.Nodes {
			if node.Domain == fused.Domain {
				n++
			}
		}
	}
	return n
}
