package golden

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// Follow makes an input of a case an output that the same model computed for an earlier case.
type Follow struct {
	Input  string
	Case   int
	Output string
	Tokens int64 // in the output
	Room   int64 // a buffer's length in tokens; 0: not a buffer (InBuffers)
}

// WithOwnPasts returns cases of a model in the form that m takes, a variant that keeps another form of the past, such
// as latents instead of keys and values. A past of no tokens fits any form. Any other past must be an output of an
// earlier case: m then continues from its own output of that case (Case.Follows). Outputs that m has in another form
// are dropped. Cases that m accepts stay unchanged.
func WithOwnPasts(m *onnx.Model, cases []Case) ([]Case, error) {
	inputs := roles.Find(m)
	out := slices.Clone(cases)
	for i, c := range cases {
		if !slices.ContainsFunc(inputs, func(in *roles.Input) bool { return otherPast(in, c) }) {
			continue
		}
		own, err := ownPasts(m, inputs, cases, i)
		if err != nil {
			return nil, fmt.Errorf("case %d: %w", i, err)
		}
		out[i] = own
	}
	return out, nil
}

// otherPast reports whether a case has a past in another form than the input expects.
func otherPast(in *roles.Input, c Case) bool {
	t := c.Input(in.Value.Name)
	want, ok := in.Value.Type()
	if c.follows(in.Value.Name) {
		return false
	}
	if in.Role == roles.Buffer && ok { // of any length
		want.Dims = slices.Clone(want.Dims)
		want.Dims[bufferAxis] = onnx.Dim{Value: -1}
	}
	return isPast(in) && ok && (t == nil || len(want.Dims) == len(t.Dims) && !accepts(want, t))
}

func isPast(in *roles.Input) bool { return in.Role == roles.Past || in.Role == roles.Buffer }

func ownPasts(m *onnx.Model, inputs []*roles.Input, cases []Case, i int) (Case, error) {
	var own Case
	batch := int64(1)
	for _, t := range cases[i].Inputs {
		v := m.Graph.Value(t.Name)
		isInput := v != nil && v.IsInput
		past := slices.IndexFunc(inputs, func(in *roles.Input) bool { return in.Value == v && isPast(in) })
		if isInput && past < 0 {
			own.Inputs = append(own.Inputs, t)
			continue
		}
		if len(t.Dims) > 0 {
			batch = t.Dims[0]
		}
		from, output, err := givenBefore(cases[:i], t)
		switch {
		case err != nil:
			return Case{}, err
		case !isInput && !t.DataType.IsFloat():
			return Case{}, fmt.Errorf("%s has no input %q, which is not a past", m.Path, t.Name)
		case from < 0 && t.Len() > 0:
			return Case{}, fmt.Errorf("no earlier case computes the past %q, and %s stores it in another form: "+
				"start with a case whose past has no tokens", t.Name, m.Path)
		case isInput && from >= 0:
			f := Follow{Input: t.Name, Case: from, Output: output}
			if len(t.Dims) > bufferAxis {
				f.Tokens = t.Dims[bufferAxis]
			}
			own.Follows = append(own.Follows, f)
		}
	}
	for _, in := range inputs {
		if !isPast(in) || own.follows(in.Value.Name) {
			continue
		}
		empty, err := noTokens(in, batch)
		if err != nil {
			return Case{}, err
		}
		own.Inputs = append(own.Inputs, empty)
	}
	for _, t := range cases[i].Outputs {
		v := m.Graph.Value(t.Name)
		if v == nil || !v.IsOutput() {
			continue
		}
		if want, ok := v.Type(); !ok || accepts(want, t) {
			own.Outputs = append(own.Outputs, t)
		}
	}
	return own, nil
}

// givenBefore finds the last case that has a tensor as output; from is -1 if there is none.
func givenBefore(cases []Case, t *onnx.Tensor) (from int, output string, err error) {
	if t.Len() == 0 {
		return -1, "", nil
	}
	want, err := t.Bytes()
	if err != nil {
		return -1, "", err
	}
	for i, c := range slices.Backward(cases) {
		for _, o := range c.Outputs {
			if o.DataType != t.DataType || !slices.Equal(o.Dims, t.Dims) {
				continue
			}
			got, err := o.Bytes()
			if err != nil {
				return -1, "", err
			}
			if bytes.Equal(got, want) {
				return i, o.Name, nil
			}
		}
	}
	return -1, "", nil
}

// noTokens returns a past without tokens: symbols other than the batch are 0, as is the length of a buffer.
func noTokens(in *roles.Input, batch int64) (*onnx.Tensor, error) {
	dims := make([]int64, len(in.Dims))
	for axis, d := range in.Dims {
		dims[axis] = max(d.Value, 0)
		switch {
		case d.Value < 0 && axis == 0:
			dims[axis] = batch
		case in.Role == roles.Buffer && axis == bufferAxis:
			dims[axis] = 0
		}
	}
	return onnx.NewTensor(in.Value.Name, in.DataType, dims, nil)
}

func (c Case) follows(input string) bool {
	return slices.ContainsFunc(c.Follows, func(f Follow) bool { return f.Input == input })
}

// Followed returns the case with its inputs from earlier cases, once these have outputs.
func (c Case) Followed(earlier []Case) (Case, error) {
	c.Inputs = slices.Clone(c.Inputs)
	for _, f := range c.Follows {
		given := earlier[f.Case].Output(f.Output)
		if given == nil {
			return Case{}, fmt.Errorf("case %d did not compute %q, which input %q needs", f.Case, f.Output, f.Input)
		}
		t := *given
		if f.Room > 0 {
			longer, err := given.Lengthened(bufferAxis, max(f.Room, given.Dims[bufferAxis]))
			if err != nil {
				return Case{}, err
			}
			t = *longer
		}
		t.Name = f.Input
		c.Inputs = append(c.Inputs, &t)
	}
	c.Follows = nil
	return c, nil
}
