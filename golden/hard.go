package golden

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// Hard is one set of inputs from HardInputs, named after its difficulty, or from Plain.
type Hard struct {
	Name   string
	Inputs []*onnx.Tensor
	sizes  *sizes
	seed   uint64
	dims   map[string]int64
}

// WithoutPadding returns outputs with zeros for tokens that do not exist, if they are [batch, tokens, …] or caches. A
// model's results for these tokens are only defined if its mask hides all keys from a query that can attend to no key.
// In half precision, most masks do so only approximately.
func (h Hard) WithoutPadding(outputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	s := h.sizes
	list := slices.Clone(outputs)
	for i, t := range outputs {
		var first, axis int
		switch {
		case len(t.Dims) < 2 || t.Dims[0] != s.batch || t.DataType.Bits() < 8:
			continue
		case len(t.Dims) == 4 && t.Dims[bufferAxis] >= s.past+s.sequence:
			first, axis = 0, bufferAxis
		case t.Dims[1] == s.sequence:
			first, axis = int(s.past), 1
		default:
			continue
		}
		b, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		b = slices.Clone(b)
		size := t.DataType.Bits() / 8
		for _, d := range t.Dims[axis+1:] {
			size *= int(d)
		}
		rows := len(b) / max(size, 1)
		for k := range rows {
			row, token := int64(k)/(int64(rows)/s.batch), int64(first)+int64(k)%t.Dims[axis]
			if token < s.past+s.sequence && !s.exists(row, token, s.past+s.sequence) {
				clear(b[k*size : (k+1)*size])
			}
		}
		if list[i], err = onnx.NewTensor(t.Name, t.DataType, t.Dims, b); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// padding says which tokens of a row, past and new ones, exist. The first row is a padded one, for models with a batch
// of 1.
type padding struct {
	name   string
	exists existence
}

// existence reports whether a token of a row exists or is padding; tokens is the row's length.
type existence func(row, token, tokens int64) bool

// paddings are the masks of a batch.
var paddings = []padding{
	{"no padding", func(_, _, _ int64) bool { return true }},
	{"padding on the left", func(row, token, _ int64) bool { return token >= (row+1)%3*2 }},
	{"padding on the right", func(row, token, tokens int64) bool { return token < tokens-(row+1)%3*2 }},
	{"holes", func(row, token, _ int64) bool { return (row+token)%3 != 1 }},
	{"a row of only padding", func(row, _, _ int64) bool { return row != 0 }},
}

// Plain is RandomInputs with the data that Begun needs.
func Plain(m *onnx.Model, seed uint64, dims map[string]int64) (Hard, error) {
	tensors, sizes, err := inputsOf(m, seed, dims, nil)
	return Hard{"random inputs", tensors, sizes, seed, dims}, err
}

// extent is a number of sequences with tokens after a past.
type extent struct{ batch, sequence, past int64 }

// The longest context of HardInputs, in tokens and in elements of the logits.
const (
	longestContext = 8192
	longestLogits  = 1 << 26
)

// HardInputs makes inputs that commonly expose attention bugs, the same for the same seed: padding on the left and on
// the right, holes, and a row of only padding; several tokens and one token after a past, for a batch; and a context
// longer than the numbers in the graph, one of which may be a window. Everything else is as in RandomInputs, except
// that a mask with an axis for the new tokens is causal and that positions count the tokens that exist. Kinds that the
// model has no input for are left out. dims are as in RandomInputs. A model may fail on some of the inputs: tables of
// positions limit its context.
func HardInputs(m *onnx.Model, seed uint64, dims map[string]int64) ([]Hard, error) {
	inputs := findInputs(m)
	a := axes(inputs)
	masked, cached := false, len(a.past) > 0 || a.buffers
	for _, in := range inputs {
		masked = masked || in.Role == roles.Mask
	}
	extents := []extent{{batch: 3, sequence: 7}}
	if cached {
		extents = append(extents, extent{3, 3, 5}, extent{3, 1, 6})
	}
	var list []Hard
	add := func(e extent, p padding, what string) error {
		given := map[string]int64{"batch": e.batch, "sequence": e.sequence}
		if cached {
			given["past"] = e.past
		}
		maps.Copy(given, dims)
		seed := seed + uint64(len(list))
		tensors, sizes, err := inputsOf(m, seed, given, p.exists)
		if err != nil {
			return err
		}
		h := Hard{what + ", " + sizes.text(), tensors, sizes, seed, given}
		if !slices.ContainsFunc(list, func(x Hard) bool { return x.Name == h.Name }) {
			list = append(list, h)
		}
		return nil
	}
	for _, e := range extents {
		for i, p := range paddings {
			if i > 0 && !masked {
				continue
			}
			if err := add(e, p, p.name); err != nil {
				return nil, err
			}
		}
	}
	long := extent{batch: 1, sequence: longContext(m, inputs)}
	if cached {
		long = extent{1, 3, long.sequence - 3}
	}
	return list, add(long, paddings[0], "a long context")
}

func (s *sizes) text() string {
	tokens := "1 token"
	if s.sequence != 1 {
		tokens = fmt.Sprintf("%d tokens", s.sequence)
	}
	if s.past == 0 {
		return tokens
	}
	return fmt.Sprintf("%s behind %d", tokens, s.past)
}

// longContext returns a number of tokens beyond every number in the graph that may be a window, as far as the positions
// reach.
func longContext(m *onnx.Model, inputs []input) int64 {
	most := int64(longestContext)
	if v := roles.Vocabulary(m); v > 0 {
		most = min(most, longestLogits/v)
	}
	for _, in := range inputs {
		for _, d := range in.Tables {
			if in.Role == roles.Position && d.Value > 0 {
				most = min(most, d.Value)
			}
		}
	}
	long := int64(64)
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			for _, v := range n.Inputs {
				if x, ok := number(v); ok && x < most {
					long = max(long, x)
				}
			}
		}
	}
	return max(min(long+3, most), 4)
}

// number returns the value of a constant that is a single integer.
func number(v *onnx.Value) (int64, bool) {
	if v == nil {
		return 0, false
	}
	t := v.Constant()
	if t == nil || t.Len() != 1 || len(t.Dims) > 1 || !t.DataType.IsInteger() {
		return 0, false
	}
	b, err := t.Bytes()
	if err != nil {
		return 0, false
	}
	at, err := newReader(t.DataType, b)
	if err != nil {
		return 0, false
	}
	return int64(at(0)), true
}
