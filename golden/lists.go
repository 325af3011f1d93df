package golden

import "github.com/mojo-patch/mojo-patch/onnx"

// Float64s returns the elements of a tensor of floats or integers of any width.
func Float64s(t *onnx.Tensor) ([]float64, error) {
	read, _, err := elementReader(t)
	if err != nil {
		return nil, err
	}
	list := make([]float64, t.Len())
	for i := range list {
		list[i] = read(int64(i))
	}
	return list, nil
}

// Int64s returns the elements of a tensor of integers of any width; those beyond 2^53 are rounded.
func Int64s(t *onnx.Tensor) ([]int64, error) {
	if !t.DataType.IsInteger() {
		return nil, &MismatchError{t.Name, t.DataType, onnx.Int64, t.Dims, t.Dims}
	}
	floats, err := Float64s(t)
	list := make([]int64, len(floats))
	for i, x := range floats {
		list[i] = int64(x)
	}
	return list, err
}
