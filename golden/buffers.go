package golden

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// bufferAxis is the axis of a buffer along which the tokens are.
const bufferAxis = 2

// InBuffers returns a case whose caches are in buffers, for a model that keeps them so (roles.Buffer): rows of zeros
// follow each past and its present. Buffers of any length get room for the tokens of the case. If the model reads the
// number of tokens from an input, InBuffers adds it, and extends masks with zeros. If a case says that there is no
// past, the given one is ignored. A case that has buffers, or is of another model, is returned unchanged.
func InBuffers(m *onnx.Model, c Case) (Case, error) {
	inputs := roles.Find(m)
	total, batch := int64(-1), int64(1)
	for _, in := range inputs {
		if t := c.Input(in.Value.Name); in.Role == roles.Mask && t != nil && len(t.Dims) > 0 {
			total, batch = t.Dims[len(t.Dims)-1], t.Dims[0]
		}
	}
	out := Case{slices.Clone(c.Inputs), slices.Clone(c.Outputs), slices.Clone(c.Follows)}
	past, room := int64(-1), total
	for i, f := range out.Follows {
		at := slices.IndexFunc(inputs, func(in *roles.Input) bool { return in.Value.Name == f.Input })
		if at < 0 || inputs[at].Role != roles.Buffer {
			continue
		}
		past, room = f.Tokens, max(inputs[at].Dims[bufferAxis].Value, total)
		out.Follows[i].Room = room
	}
	for _, in := range inputs {
		i := slices.IndexFunc(c.Inputs, func(t *onnx.Tensor) bool { return t.Name == in.Value.Name })
		if in.Role != roles.Buffer || i < 0 || len(c.Inputs[i].Dims) != 4 {
			continue
		}
		fixed := in.Dims[bufferAxis].Value
		if fixed >= 0 && total > fixed {
			return Case{}, fmt.Errorf("input %q holds %d tokens, but the case has %d: use a buffer with at least as "+
				"many",
				in.Value.Name, fixed, total)
		}
		room, batch = max(fixed, total), c.Inputs[i].Dims[0]
		if rows := c.Inputs[i].Dims[bufferAxis]; rows < total { // not a buffer
			past = rows
		}
		given, err := c.Inputs[i], error(nil)
		if c.withoutPast(inputs) { // ignore the given one
			past = 0
			if given, err = empty(given); err != nil {
				return Case{}, err
			}
		}
		if out.Inputs[i], err = given.Lengthened(bufferAxis, room); err != nil {
			return Case{}, err
		}
		for k, t := range c.Outputs {
			if v := in.Present(); v == nil || v.Name != t.Name {
				continue
			}
			if out.Outputs[k], err = t.Lengthened(bufferAxis, room); err != nil {
				return Case{}, err
			}
		}
	}
	for _, in := range inputs {
		if in.Role != roles.PastLength || past < 0 || c.Input(in.Value.Name) != nil {
			continue
		}
		if len(in.Dims) != 1 || in.Dims[0].Value == 1 {
			batch = 1 // one for all sequences
		}
		out.Inputs = append(out.Inputs, onnx.NewInt64s(in.Value.Name, slices.Repeat([]int64{past}, int(batch))))
		for i, t := range out.Inputs {
			if slices.ContainsFunc(inputs, func(x *roles.Input) bool {
				return x.Role == roles.Mask && x.Value.Name == t.Name
			}) {
				var err error
				if out.Inputs[i], err = t.Lengthened(len(t.Dims)-1, room); err != nil {
					return Case{}, err
				}
			}
		}
	}
	return out, nil
}

// withoutPast reports whether a case says that it has no past.
func (c Case) withoutPast(inputs []*roles.Input) bool {
	for _, in := range inputs {
		if t := c.Input(in.Value.Name); in.Role == roles.CacheFlag && t != nil {
			b, err := t.Bytes()
			return err == nil && len(b) == 1 && b[0] == 0
		}
	}
	return false
}

// empty returns a cache of no tokens.
func empty(cache *onnx.Tensor) (*onnx.Tensor, error) {
	dims := slices.Clone(cache.Dims)
	dims[bufferAxis] = 0
	return onnx.NewTensor(cache.Name, cache.DataType, dims, nil)
}
