package golden

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// RandomInputs makes one set of inputs for the model, the same for the same seed. It is meant for language models:
//   - an integer input that indexes the rows of a Gather's table (token and type ids) is uniform below their number,
//   - positions count up from the length of the past, in every row,
//   - masks let everything through: 1, true, or 0 where floats of rank 3 and more are added to scores,
//   - past key values and other floats are normal with deviation 0.5,
//   - the lengths that GroupQueryAttention wants agree with the rest, and every other integer or bool is 1.
//
// dims gives values to the symbolic dimensions by name; "batch", "sequence" and "past" set the three sizes behind
// them, whatever the exporter called the symbols (default 2, 6 and 4). A dimension that covers past and new positions
// gets their sum, as does that of a buffer for both. It errs on names in dims that the model lacks, and on inputs of
// strings or of less than 8 bits.
func RandomInputs(m *onnx.Model, seed uint64, dims map[string]int64) ([]*onnx.Tensor, error) {
	inputs := findInputs(m)
	sizes, err := resolveSizes(inputs, dims)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(seed, 0x6d6f6a6f))
	tensors := make([]*onnx.Tensor, len(inputs))
	for i, in := range inputs {
		if tensors[i], err = in.random(r, sizes); err != nil {
			return nil, fmt.Errorf("cannot make values for input %q: %w", in.Value.Name, err)
		}
	}
	return tensors, nil
}

// input is an input of the model with what RandomInputs knows of it.
type input struct{ *roles.Input }

func findInputs(m *onnx.Model) []input {
	var list []input
	for _, in := range roles.Find(m) {
		list = append(list, input{in})
	}
	return list
}

func (in input) random(r *rand.Rand, s *sizes) (*onnx.Tensor, error) {
	if !in.Typed {
		return nil, fmt.Errorf("the model declares no tensor type for it")
	}
	shape := make([]int64, len(in.Dims))
	for k, d := range in.Dims {
		shape[k] = s.size(d)
	}
	t := &onnx.Tensor{Name: in.Value.Name, DataType: in.DataType, Dims: shape}
	size := t.Size()
	if size < 0 || in.DataType.Bits() < 8 {
		return nil, fmt.Errorf("inputs of %s%v are not supported: give the inputs in a file", in.DataType, shape)
	}
	if size > math.MaxInt32 {
		return nil, fmt.Errorf("%s%v takes %d bytes: give smaller dimensions", in.DataType, shape, size)
	}
	b := make([]byte, size)
	n := int(t.Len())
	switch {
	case in.DataType.IsFloat():
		for i := range n {
			putFloat(in.DataType, b, i, in.float(r))
		}
	case in.DataType.IsInteger() || in.DataType == onnx.Bool:
		last := 1
		if len(shape) > 0 && n > 0 {
			last = int(shape[len(shape)-1])
		}
		for i := range n {
			v := in.integer(r, s, int64(i%last))
			if in.DataType == onnx.Bool && v != 0 {
				v = 1
			}
			putInt(in.DataType.Bits()/8, b, i, v)
		}
	default:
		return nil, fmt.Errorf("inputs of %s are not supported: give the inputs in a file", in.DataType)
	}
	return onnx.NewTensor(in.Value.Name, in.DataType, shape, b)
}

func (in input) float(r *rand.Rand) float64 {
	switch {
	case in.Role == roles.Mask && len(in.Dims) >= 3:
		return 0
	case in.Role == roles.Mask:
		return 1
	}
	return 0.5 * r.NormFloat64()
}

// integer returns an element that stands at column of the last dimension.
func (in input) integer(r *rand.Rand, s *sizes, column int64) int64 {
	rows := s.rows(in)
	switch in.Role {
	case roles.Position:
		if v := s.past + column; rows <= 0 || v < rows {
			return v
		}
		return column % rows
	case roles.Index:
		if rows > 0 {
			return r.Int64N(rows)
		}
		return 0
	case roles.Total:
		return s.past + s.sequence
	case roles.Last:
		return s.past + s.sequence - 1
	case roles.PastLength:
		return s.past
	case roles.CacheFlag:
		if s.past == 0 {
			return 0
		}
	}
	return 1
}
