package golden

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
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
// gets their sum. It errs on names in dims that the model lacks, and on inputs of strings or of less than 8 bits.
func RandomInputs(m *onnx.Model, seed uint64, dims map[string]int64) ([]*onnx.Tensor, error) {
	inputs := findRoles(m)
	sizes, err := resolveSizes(inputs, dims)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(seed, 0x6d6f6a6f))
	tensors := make([]*onnx.Tensor, len(inputs))
	for i, in := range inputs {
		if tensors[i], err = in.random(r, sizes); err != nil {
			return nil, fmt.Errorf("cannot make values for input %q: %w", in.value.Name, err)
		}
	}
	return tensors, nil
}

func (in *input) random(r *rand.Rand, s *sizes) (*onnx.Tensor, error) {
	if !in.typed {
		return nil, fmt.Errorf("the model declares no tensor type for it")
	}
	shape := make([]int64, len(in.dims))
	for k, d := range in.dims {
		shape[k] = s.size(d)
	}
	t := &onnx.Tensor{Name: in.value.Name, DataType: in.dataType, Dims: shape}
	size := t.Size()
	if size < 0 || in.dataType.Bits() < 8 {
		return nil, fmt.Errorf("inputs of %s%v are not supported: give the inputs in a file", in.dataType, shape)
	}
	if size > math.MaxInt32 {
		return nil, fmt.Errorf("%s%v takes %d bytes: give smaller dimensions", in.dataType, shape, size)
	}
	b := make([]byte, size)
	n := int(t.Len())
	switch {
	case in.dataType.IsFloat():
		for i := range n {
			putFloat(in.dataType, b, i, in.float(r))
		}
	case in.dataType.IsInteger() || in.dataType == onnx.Bool:
		last := 1
		if len(shape) > 0 && n > 0 {
			last = int(shape[len(shape)-1])
		}
		for i := range n {
			v := in.integer(r, s, int64(i%last))
			if in.dataType == onnx.Bool && v != 0 {
				v = 1
			}
			putInt(in.dataType.Bits()/8, b, i, v)
		}
	default:
		return nil, fmt.Errorf("inputs of %s are not supported: give the inputs in a file", in.dataType)
	}
	return onnx.NewTensor(in.value.Name, in.dataType, shape, b)
}

func (in *input) float(r *rand.Rand) float64 {
	switch {
	case in.role == roleMask && len(in.dims) >= 3:
		return 0
	case in.role == roleMask:
		return 1
	}
	return 0.5 * r.NormFloat64()
}

// integer gives an element that stands at column of the last dimension.
func (in *input) integer(r *rand.Rand, s *sizes, column int64) int64 {
	rows := s.rows(in)
	switch in.role {
	case rolePosition:
		if v := s.past + column; rows <= 0 || v < rows {
			return v
		}
		return column % rows
	case roleIndex:
		if rows > 0 {
			return r.Int64N(rows)
		}
		return 0
	case roleTotal:
		return s.past + s.sequence
	case roleLast:
		return s.past + s.sequence - 1
	case rolePastLength:
		return s.past
	case roleCacheFlag:
		if s.past == 0 {
			return 0
		}
	}
	return 1
}

// nameHas says whether a name holds one of the words, whatever the exporter put around them.
func nameHas(name string, words ...string) bool {
	name = strings.ToLower(name)
	for _, w := range words {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}
