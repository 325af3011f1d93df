package serving

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// onnxruntime-genai feeds a decoder input_ids [batch, new tokens], position_ids, and an attention_mask with a column
// for each token so far, or under a CUDA graph for each possible token. A batch has padding after the prompts, with
// zeros in the mask. The next tokens come after the padding; only position_ids continue from the prompt.
//
// So the number of ones in a row of the mask is its number of tokens, and minus the new ones it is the row's
// past_length. A model with a cache by rows (apply --past-length=rows) takes it as input, and padding leaves no gap.
// Any other model would count on from the padding and compute a different text, so it is declared to take one sequence.

// Names of inputs and outputs that genai knows.
const (
	genaiIDs       = "input_ids"
	genaiMask      = "attention_mask"
	genaiPositions = "position_ids"
	genaiLogits    = "logits"
)

// fitGenAI changes the model to take genai's inputs.
func (d *decoder) fitGenAI(f *GenAIFolder) error {
	if err := d.orderLayers(); err != nil {
		return err
	}
	if err := d.pairStates(); err != nil {
		return err
	}
	if n := d.tokensPerRun(); n > 1 {
		return fmt.Errorf("the model takes %d tokens per run, and genai prompts of any length: export it with a "+
			"sequence of any length, or of 1", n)
	}
	f.Computed = append(f.Computed, d.unmaskNew()...)
	mask, positions, past := d.Input(roles.Mask), d.Input(roles.Position), d.Input(roles.PastLength)
	switch {
	case mask != nil && len(mask.Dims) != 2:
		return fmt.Errorf("genai provides a mask of shape [batch, tokens], but the model needs %s: export it with a "+
			"mask of two axes", mask)
	case positions != nil && len(positions.Dims) != 2:
		return fmt.Errorf("genai provides positions of shape [batch, sequence], but the model needs %s", positions)
	case past != nil && (len(past.Dims) > 1 || len(past.Dims) == 1 && past.Dims[0].Value > 1):
		return fmt.Errorf("genai provides the number of cached tokens of each sequence, but the model needs %s",
			past)
	}
	switch {
	case len(d.states) > 0:
		f.OneBecause = fmt.Sprintf("padding after a prompt would change its state %s", d.states[0].Past)
	case past == nil || !d.buffers:
		f.OneBecause = "the model does not count the tokens of each sequence: patch it with --cache static " +
			"--past-length=rows"
	case len(past.Dims) == 0 || past.Dims[0].Value == 1:
		f.OneBecause = fmt.Sprintf("input %s is one number for all sequences: patch the model with "+
			"--past-length=rows", past)
	case positions != nil && positions.Dims[0].Value == 1:
		f.OneBecause = fmt.Sprintf("input %s has one row for all sequences", positions)
	}
	if past != nil {
		tokens, err := d.countTokens(mask)
		if err != nil {
			return err
		}
		d.give(*past, d.pastLength(tokens, past.Dims))
		f.Computed = append(f.Computed, past.Value.Name)
		if f.OneBecause == "" && d.lastOnly() && !d.takeLastOfRows(tokens) {
			f.OneBecause = "the logits are of the last position, which is padding in a batch: patch the model " +
				"without --last-logits"
		}
	}
	if keep := d.Input(roles.LogitsToKeep); keep != nil {
		d.give(*keep, d.filled("logits_to_keep", keep.Dims, 0)) // all
		f.Computed = append(f.Computed, keep.Value.Name)
	}
	f.Batch = batchAny
	if f.OneBecause != "" {
		f.Batch = batchOne
	}
	return d.nameForGenAI(f.Batch == batchOne)
}

// countTokens computes the number of tokens in each row of the mask, [batch]. If the cache is in buffers, it also
// replaces genai's mask by a mask of the buffers.
func (d *decoder) countTokens(mask *generate.Port) (*onnx.Value, error) {
	given := mask
	if mask == nil || d.buffers {
		if mask != nil { // free its name
			if err := d.edit.Rename(d.g, mask.Value, "mask_of_buffers"); err != nil {
				return nil, err
			}
		}
		dims := []onnx.Dim{d.IDs.Dims[0], {Value: -1, Param: "total_sequence_length"}}
		given = &generate.Port{DataType: onnx.Int64, Dims: dims, Role: roles.Mask}
		given.Value = d.edit.AddInput(d.g, genaiMask, onnx.Type{DataType: onnx.Int64, HasShape: true, Dims: dims})
	}
	ones := d.node("Cast", "mask_ones", []*onnx.Value{given.Value}, onnx.IntAttr("to", int64(onnx.Int64)))
	tokens := d.rowSums("row_tokens", ones)
	if given == mask {
		return tokens, nil
	}
	if mask != nil {
		d.maskBuffers(*mask, tokens)
	}
	d.Others = append(d.Others, *given)
	return tokens, nil
}

// pastLength computes the number of cached tokens: all except the new ones. It is 0 while a prompt is read, which has
// at least as many columns as tokens, due to padding.
func (d *decoder) pastLength(tokens *onnx.Value, dims []onnx.Dim) *onnx.Value {
	before := d.node("Sub", "row_tokens_before", []*onnx.Value{tokens, d.newTokens()})
	length := d.node("Max", "row_past_length", []*onnx.Value{before, d.numbers("no_tokens", 0)})
	if len(dims) == 0 {
		length = d.node("Squeeze", "row_past_length_scalar", []*onnx.Value{length})
	}
	return length
}

// takeLastOfRows makes the model compute the logits of each row's last token instead of the last position. It returns
// false if the logits do not come from a Slice of the last position.
func (d *decoder) takeLastOfRows(tokens *onnx.Value) bool {
	slice := d.lastSlice()
	if slice == nil {
		return false
	}
	read := d.node("Min", "row_tokens_read", []*onnx.Value{tokens, d.newTokens()}) // of a row, in this run
	at := d.node("Sub", "row_last", []*onnx.Value{read, d.numbers("one_token", 1)})
	at = d.node("Reshape", "row_last_index", []*onnx.Value{at, d.numbers("index_shape", -1, 1, 1)})
	last := slice.OutputValue(0)
	d.edit.AddNode(d.g, "GatherND", []*onnx.Value{slice.Input(0), at}, []*onnx.Value{last},
		onnx.IntAttr("batch_dims", 1)).Name = last.Name
	d.edit.Drop(slice)
	return true
}

// lastSlice finds the Slice of the last position that the logits come from, through nodes with a single input that is
// not constant.
func (d *decoder) lastSlice() *onnx.Node {
	for v := d.Logits.Value; v != nil && v.Producer != nil; {
		n := v.Producer
		if n.Is("Slice") {
			if holds(n.Input(1), -1) && holds(n.Input(2), math.MaxInt64, math.MaxInt32) && holds(n.Input(3), 1) &&
				(n.Input(4) == nil || holds(n.Input(4), 1)) {
				return n
			}
			return nil
		}
		v = nil
		for _, in := range n.Inputs {
			switch {
			case in == nil || fixed(in):
			case v != nil: // several
				return nil
			default:
				v = in
			}
		}
	}
	return nil
}

// holds reports whether a value is a constant of one integer that is in some.
func holds(v *onnx.Value, some ...int64) bool {
	t := v.Constant()
	if t == nil || t.DataType != onnx.Int64 || t.Len() != 1 {
		return false
	}
	b, err := t.Bytes()
	return err == nil && slices.Contains(some, int64(binary.LittleEndian.Uint64(b)))
}

// fixed reports whether a value is computed only from constants.
func fixed(v *onnx.Value) bool {
	for x := range onnx.Upstream((*onnx.Value).IsConstant, v) {
		if x.IsInput {
			return false
		}
	}
	return true
}

// nameForGenAI sets the names and types of inputs and outputs. one declares a batch of one sequence.
func (d *decoder) nameForGenAI(one bool) error {
	batch := onnx.Dim{Value: -1, Param: "batch_size"}
	if one {
		batch = onnx.Dim{Value: 1}
	}
	port := func(p generate.Port, name string, given onnx.DataType, axis int) error {
		d.cast(&p, given)
		p.Dims = slices.Clone(p.Dims)
		p.Dims[axis] = batch
		d.declare(p)
		return d.edit.Rename(d.g, p.Value, name)
	}
	ids := onnx.Int64
	if d.IDs.DataType == onnx.Int32 {
		ids = onnx.Int32
	}
	if err := port(d.IDs, genaiIDs, ids, 0); err != nil {
		return err
	}
	for _, p := range d.Others {
		name := map[roles.Role]string{roles.Mask: genaiMask, roles.Position: genaiPositions}[p.Role]
		if name == "" {
			return fmt.Errorf("genai does not provide input %s (%s)", p, p.Role)
		}
		if err := port(p, name, onnx.Int64, 0); err != nil {
			return err
		}
	}
	cache := func(c generate.Cache, past, present string) error {
		if err := port(c.Past, past, c.Past.DataType, 0); err != nil {
			return err
		}
		c.Present.Dims = slices.Clone(c.Past.Dims)
		if !d.buffers && c.Tokens >= 0 {
			c.Present.Dims[2] = onnx.Dim{Value: -1, Param: "total_sequence_length"}
		}
		return port(c.Present, present, c.Present.DataType, 0)
	}
	for i, c := range d.Caches {
		form := layerNames[i%2]
		if err := cache(c, layerName(form.past, i/2), layerName(form.present, i/2)); err != nil {
			return err
		}
	}
	for i, c := range d.states {
		form := stateNames[i%2]
		if err := cache(c, layerName(form.past, i/2), layerName(form.present, i/2)); err != nil {
			return err
		}
	}
	d.Logits.Dims = slices.Clone(d.Logits.Dims)
	d.Logits.Dims[2] = onnx.Dim{Value: d.vocabulary()}
	if err := port(d.Logits, genaiLogits, d.Logits.DataType, 0); err != nil {
		return err
	}
	return d.edit.Finish()
}
