package golden

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// setPaged sets the sizes of a model with pools of blocks: each sequence has blocks of its own for its past and an even
// share of the new tokens.
func (s *sizes) setPaged(inputs []input) {
	block := int64(0)
	for _, in := range inputs {
		if in.Role == roles.Pool && len(in.Dims) == 4 {
			block = max(1, in.Dims[1].Value)
		}
	}
	if block == 0 {
		return
	}
	added := (s.sequence + max(s.batch, 1) - 1) / max(s.batch, 1)
	blocks := (s.past + added + block - 1) / block
	for _, in := range inputs {
		for axis, size := range map[roles.Role][]int64{roles.Cumulative: {s.batch + 1}, roles.PastLength: {s.batch},
			roles.BlockTable: {s.batch, blocks}, roles.Pool: {s.batch * blocks}}[in.Role] {
			if axis < len(in.Dims) {
				s.set([]onnx.Dim{in.Dims[axis]}, size)
			}
		}
	}
}
