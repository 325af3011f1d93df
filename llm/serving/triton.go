package serving

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// TritonOptions controls how Triton Inference Server serves a model.
type TritonOptions struct {
	Name    string // of the model, and of its folder in the repository
	Library string // the kernel library; empty for a model without fused ops
	// ServerPath is the path of the repository on the server, which opens the library by it.
	ServerPath string
	// MaxBatchSize is the most requests that run together; 0 runs them one by one.
	MaxBatchSize int
	// QueueDelay is how long a request waits for others, in microseconds.
	QueueDelay int
	// GPU makes the server run the model with the CUDA provider.
	GPU bool
}

// TritonModel describes a model written for Triton.
type TritonModel struct {
	Files        []string       `json:"files"`
	FusedOps     int            `json:"fused_ops"`
	MaxBatchSize int            `json:"max_batch_size"`
	OneByOne     string         `json:"one_by_one,omitempty"` // why requests are not batched
	Inputs       []TritonTensor `json:"inputs"`
	Outputs      []TritonTensor `json:"outputs"`
	States       []TritonState  `json:"states,omitempty"` // that the server keeps for each sequence
}

// TritonTensor is an input or output of a request. Dims exclude the batch of a batched model.
type TritonTensor struct {
	Name     string  `json:"name"`
	DataType string  `json:"data_type"` // in KServe's spelling
	Dims     []int64 `json:"dims"`      // -1 for any
}

// TritonState is an input that takes an output of the previous request.
type TritonState struct {
	TritonTensor
	Output string `json:"output"`
}

var modelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// CheckTritonName returns an error unless the name is valid for a model, its repository folder and its URL.
func CheckTritonName(name string) error {
	if !modelName.MatchString(name) {
		return fmt.Errorf("invalid model name %q: use only letters, digits, '.', '_' and '-'", name)
	}
	return nil
}

// WriteTriton writes a model, as version 1, to its existing folder of a model repository. It changes a decoder with
// buffers, so that the server keeps the caches and their number of tokens.
func WriteTriton(folder string, m *onnx.Model, o TritonOptions) (*TritonModel, error) {
	t := &TritonModel{FusedOps: fusedOps(m), MaxBatchSize: o.MaxBatchSize}
	if t.FusedOps > 0 && o.Library == "" {
		return nil, errors.New("the model has fused ops, so it needs the library with their kernels")
	}
	states, err := serverStates(m)
	if err == nil {
		err = t.describe(m, states)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	version := filepath.Join(folder, "1")
	if err := os.Mkdir(version, 0o755); err != nil {
		return nil, err
	}
	if err := onnx.Write(filepath.Join(version, modelFile), m); err != nil {
		return nil, err
	}
	library := ""
	if t.FusedOps > 0 {
		name := filepath.Base(o.Library)
		if err := copyFile(filepath.Join(version, name), o.Library); err != nil {
			return nil, err
		}
		library = path.Join(o.ServerPath, o.Name, "1", name)
	}
	config := filepath.Join(folder, "config.pbtxt")
	if err := os.WriteFile(config, []byte(t.config(o, library)), 0o666); err != nil {
		return nil, err
	}
	t.Files, err = filesIn(folder)
	return t, err
}

// state is a pair of an input and an output of the model.
type state struct{ input, output *onnx.Value }

// serverStates returns the states that the server keeps for a decoder with buffers, or with only states of a fixed
// size, and makes the graph compute the other inputs from them. It returns nil for other models.
func serverStates(m *onnx.Model) (states []state, err error) {
	buffers := false
	for _, in := range roles.Find(m) {
		buffers = buffers || in.Role == roles.Buffer
	}
	if !buffers && !onlyStates(m) {
		return nil, nil
	}
	d, err := readDecoder(m)
	if err != nil {
		return nil, err
	}
	if d.unmaskNew(); buffers {
		length, err := d.lengthState()
		if err != nil {
			return nil, err
		}
		states = append(states, length)
	}
	for _, c := range slices.Concat(d.Caches, d.states) {
		c.Present.Dims = c.Past.Dims
		for _, p := range []generate.Port{c.Past, c.Present} { // "3" is a name to the server
			d.declare(p)
		}
		states = append(states, state{c.Past.Value, c.Present.Value})
	}
	return states, d.edit.Finish()
}

// onlyStates reports whether a model is a decoder that keeps only states of a fixed size, and whose other inputs follow
// from the ids.
func onlyStates(m *onnx.Model) bool {
	s, err := generate.Describe(m)
	if err != nil || len(s.Caches) == 0 || len(s.IDs.Dims) != 2 {
		return false
	}
	d := &decoder{Signature: s}
	d.splitStates()
	return len(d.Caches) == 0 && (len(s.Others) == 0 || len(s.Others) == 1 && d.newMask() != nil)
}

// lengthState makes the number of tokens of each sequence a state, and computes the mask and the positions from it.
func (d *decoder) lengthState() (state, error) {
	past, mask, positions := d.Input(roles.PastLength), d.Input(roles.Mask), d.Input(roles.Position)
	switch {
	case past == nil || len(past.Dims) != 1 || past.Dims[0].Value >= 0:
		return state{}, errors.New("the server keeps the buffers only of a decoder that gets the number of tokens of " +
			"each sequence: patch it with --cache static=M --past-length=rows")
	case d.room() == 0:
		return state{}, fmt.Errorf("the server keeps buffers of one size, but the model takes buffers of any size "+
			"(%s): patch it with --cache static=M, for M tokens", d.Caches[0].Past)
	case positions != nil && len(positions.Dims) != 2:
		return state{}, fmt.Errorf("export computes positions of shape [batch, sequence], but the model needs %s",
			positions)
	}
	// The server requires an axis besides the batch.
	dims := []onnx.Dim{past.Dims[0], {Value: 1}}
	name := past.Value.Name
	if err := d.edit.Rename(d.g, past.Value, name+"_of_rows"); err != nil {
		return state{}, err
	}
	length := d.edit.AddInput(d.g, name, onnx.Type{DataType: onnx.Int64, HasShape: true, Dims: dims})
	before := d.node("Reshape", "row_tokens_before", []*onnx.Value{length, d.numbers("flat", -1)})
	d.give(*past, before)
	tokens := d.node("Add", "row_tokens", []*onnx.Value{before, d.newTokens()})
	if mask != nil {
		d.maskBuffers(*mask, tokens)
	}
	if positions != nil {
		count := d.node("Squeeze", "new_tokens", []*onnx.Value{d.size(d.IDs.Value, 1)})
		steps := d.node("Range", "new_slots", []*onnx.Value{d.filled("first_slot", nil, 0), count,
			d.filled("slot_step", nil, 1)})
		d.give(*positions, d.node("Add", "row_positions", []*onnx.Value{length, steps}))
	}
	if keep := d.Input(roles.LogitsToKeep); keep != nil {
		d.give(*keep, d.filled("logits_to_keep", keep.Dims, 1)) // of the last token
	}
	for _, p := range d.Others {
		return state{}, fmt.Errorf("the server cannot provide input %s (%s)", p, p.Role)
	}
	present := d.node("Unsqueeze", "present_length", []*onnx.Value{tokens, d.numbers("column_axis", 1)})
	d.edit.SetType(present, onnx.Type{DataType: onnx.Int64, HasShape: true, Dims: dims})
	d.edit.AddOutput(d.g, present)
	return state{length, present}, nil
}
