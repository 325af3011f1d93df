package golden

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// bufferAxis is the axis of a buffer that the tokens are along.
const bufferAxis = 2

// InBuffers returns a case whose caches are in buffers, for a model that keeps them so (roles.Buffer): rows of
// zeros behind those of each past, and behind those of its present. Buffers of any length get room for the tokens of
// the case. A case that has buffers, and one of another model, is returned as it is.
func InBuffers(m *onnx.Model, c Case) (Case, error) {
	inputs := roles.Find(m)
	total := int64(-1)
	for _, in := range inputs {
		if t := c.Input(in.Value.Name); in.Role == roles.Mask && t != nil && len(t.Dims) > 0 {
			total = t.Dims[len(t.Dims)-1]
		}
	}
	out := Case{slices.Clone(c.Inputs), slices.Clone(c.Outputs)}
	for _, in := range inputs {
		i := slices.IndexFunc(c.Inputs, func(t *onnx.Tensor) bool { return t.Name == in.Value.Name })
		if in.Role != roles.Buffer || i < 0 || len(c.Inputs[i].Dims) != 4 {
			continue
		}
		room := in.Dims[bufferAxis].Value
		if room >= 0 && total > room {
			return Case{}, fmt.Errorf("input %q holds %d tokens, and the case has %d: a buffer of as many is needed",
				in.Value.Name, room, total)
		}
		var err error
		if out.Inputs[i], err = withRows(c.Inputs[i], max(room, total)); err != nil {
			return Case{}, err
		}
		for k, t := range c.Outputs {
			v := m.Graph.Value(t.Name)
			if v == nil || !isPresent(m, in.Value, v) {
				continue
			}
			if out.Outputs[k], err = withRows(t, max(room, total)); err != nil {
				return Case{}, err
			}
		}
	}
	return out, nil
}

// isPresent reports whether an output is what becomes of a buffer.
func isPresent(m *onnx.Model, past, output *onnx.Value) bool {
	n := output.Producer
	return n != nil && slices.Contains(n.Inputs, past) && slices.Contains(m.Graph.Outputs, output) &&
		output.Output == slices.Index(n.Inputs, past)-3 // present_key, of past_key, is output 1, of input 4
}

// withRows returns a cache with rows of zeros behind those that it has, if it has fewer.
func withRows(t *onnx.Tensor, rows int64) (*onnx.Tensor, error) {
	if t.Dims[bufferAxis] >= rows {
		return t, nil
	}
	b, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	row := int(t.Dims[3]) * t.DataType.Bits() / 8
	have, room := int(t.Dims[bufferAxis])*row, int(rows)*row
	heads := int(t.Dims[0] * t.Dims[1])
	out := make([]byte, heads*room)
	for h := range heads {
		copy(out[h*room:], b[h*have:(h+1)*have])
	}
	dims := slices.Clone(t.Dims)
	dims[bufferAxis] = rows
	return onnx.NewTensor(t.Name, t.DataType, dims, out)
}
