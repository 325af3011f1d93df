package golden

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Convert returns the tensor with elements of another float type, rounded to nearest, ties to even (from float64
// through float32). Both types must be float16, bfloat16, float32 or float64; otherwise it returns an error. Compare
// accepts tensors of different float types directly.
func Convert(t *onnx.Tensor, to onnx.DataType) (*onnx.Tensor, error) {
	if t.DataType == to {
		return t, nil
	}
	if !t.DataType.IsFloat() || !to.IsFloat() {
		return nil, fmt.Errorf("tensor %q: cannot convert %s to %s: only float types can be "+
			"converted", t.Name, t.DataType, to)
	}
	read, _, err := elementReader(t)
	if err != nil {
		return nil, err
	}
	n := t.Len()
	out := make([]byte, n*int64(to.Bits()/8))
	for i := range n {
		PutFloat(to, out, int(i), read(i))
	}
	return onnx.NewTensor(t.Name, to, t.Dims, out)
}
