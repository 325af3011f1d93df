package golden

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// RandomInputs makes one set of inputs for the model, determined by the seed. It is meant for language models:
//   - an integer input that indexes the rows of a Gather's table (token and type ids) is uniform below their number,
//   - positions count up from the length of the past, in every row,
//   - masks hide nothing: they are 1, true, or 0 if floats of rank 3 and more are added to scores,
//   - past key values and other floats are normal with deviation 0.5,
//   - lengths for GroupQueryAttention agree with the rest, as do lengths and block tables of a model with pools, whose
//     sequence counts the new tokens of the whole batch; every other integer or bool is 1.
//
// dims sets symbolic dimensions by name; "batch", "sequence" and "past" set the three underlying sizes, whatever the
// exporter called the symbols (default 2, 6 and 4). A dimension for past and new positions, including a buffer's, gets
// their sum. RandomInputs returns an error for names in dims that the model lacks, and for inputs of strings or of less
// than 8 bits.
func RandomInputs(m *onnx.Model, seed uint64, dims map[string]int64) ([]*onnx.Tensor, error) {
	tensors, _, err := inputsOf(m, seed, dims, nil)
	return tensors, err
}

// inputsOf makes inputs in which only some tokens exist, or all if exists is nil.
func inputsOf(m *onnx.Model, seed uint64, dims map[string]int64, exists existence) ([]*onnx.Tensor,
	*sizes, error) {
	inputs := findInputs(m)
	sizes, err := resolveSizes(inputs, dims)
	if err != nil {
		return nil, nil, err
	}
	sizes.exists = exists
	r := rand.New(rand.NewPCG(seed, 0x6d6f6a6f))
	tensors := make([]*onnx.Tensor, len(inputs))
	for i, in := range inputs {
		if tensors[i], err = in.random(r, sizes); err != nil {
			return nil, nil, fmt.Errorf("cannot make values for input %q: %w", in.Value.Name, err)
		}
	}
	return tensors, sizes, nil
}

// input is an input of the model with its role.
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
		return nil, fmt.Errorf("random inputs of %s%v are not supported: use --inputs to read them from a "+
			"file", in.DataType, shape)
	}
	if size > math.MaxInt32 {
		return nil, fmt.Errorf("%s%v takes %d bytes: use --dim to set smaller dimensions", in.DataType, shape, size)
	}
	b := make([]byte, size)
	n := int(t.Len())
	switch {
	case in.DataType.IsFloat():
		for i := range n {
			PutFloat(in.DataType, b, i, in.float(r, s, shape, i))
		}
	case in.DataType.IsInteger() || in.DataType == onnx.Bool:
		for i := range n {
			v := in.integer(r, s, shape, i)
			if in.DataType == onnx.Bool && v != 0 {
				v = 1
			}
			putInt(in.DataType.Bits()/8, b, i, v)
		}
	case in.DataType == onnx.Float8E4M3FN:
		for i := range b {
			b[i] = byte(r.IntN(256))
			if b[i]&0x7f == 0x7f { // NaN
				b[i]--
			}
		}
	default:
		return nil, fmt.Errorf("random inputs of %s are not supported: use --inputs to read them from a "+
			"file", in.DataType)
	}
	return onnx.NewTensor(in.Value.Name, in.DataType, shape, b)
}

func (in input) float(r *rand.Rand, s *sizes, shape []int64, i int) float64 {
	switch seen := s.seen(shape, i); {
	case in.Role == roles.Mask && len(in.Dims) >= 3 && !seen && in.DataType == onnx.Float16:
		return -65504
	case in.Role == roles.Mask && len(in.Dims) >= 3 && !seen:
		return -1e9
	case in.Role == roles.Mask && (len(in.Dims) >= 3 || !seen):
		return 0
	case in.Role == roles.Mask:
		return 1
	}
	return 0.5 * r.NormFloat64()
}

// integer returns element i of an integer tensor.
func (in input) integer(r *rand.Rand, s *sizes, shape []int64, i int) int64 {
	rows := s.rows(in)
	switch in.Role {
	case roles.Position:
		row, column := int64(0), int64(0)
		if len(shape) > 0 {
			last := shape[len(shape)-1]
			row, column = int64(i)/last%max(s.batch, 1), int64(i)%last
		}
		if v := s.position(row, s.past+column); rows <= 0 || v < rows {
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
	case roles.Cumulative:
		return s.sequence * int64(i) / max(s.batch, 1)
	case roles.BlockTable:
		return int64(i)
	case roles.CacheFlag:
		if s.past == 0 {
			return 0
		}
	case roles.Mask:
		if !s.seen(shape, i) {
			return 0
		}
	}
	return 1
}

// seen reports whether element i of a mask is for a token that may be attended to.
func (s *sizes) seen(shape []int64, i int) bool {
	if s.exists == nil || len(shape) == 0 {
		return true
	}
	rank, n := len(shape), int64(1)
	for _, d := range shape[1:] {
		n *= d
	}
	token, row := int64(i)%shape[rank-1], int64(0)
	if rank > 1 {
		row = int64(i) / n
	}
	last := s.past + s.sequence - 1
	if rank > 2 && (shape[rank-2] > 1 || s.sequence == 1) {
		last = s.past + int64(i)/shape[rank-1]%shape[rank-2]
	}
	return token <= last && s.exists(row, token, s.past+s.sequence)
}

// position returns how many tokens of a row precede one.
func (s *sizes) position(row, token int64) int64 {
	if s.exists == nil {
		return token
	}
	n := int64(0)
	for j := range token {
		if s.exists(row, j, s.past+s.sequence) {
			n++
		}
	}
	return n
}
