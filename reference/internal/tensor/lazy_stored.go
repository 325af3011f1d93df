package tensor

import (
	"errors"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var errComputed = errors.New("the elements are computed")

// Stored returns a lazy tensor whose elements were only moved as a tensor that assembles its elements from where they
// are stored, on demand. It returns an error if elements are computed.
func (t *Tensor) Stored(name string) (*onnx.Tensor, error) {
	if t.lazy == nil {
		return nil, errComputed
	}
	stored, err := t.lazy.stored(name)
	if err == nil && stored.DataType != t.DataType { // cast on the way
		return nil, errComputed
	}
	return stored, err
}

func (v *view) stored(name string) (*onnx.Tensor, error) {
	if w, ok := v.whole(); ok {
		v = w
	}
	sources := map[reader]*onnx.Tensor{}
	parts := make([]*onnx.Tensor, len(v.blocks))
	for i, b := range v.blocks {
		if sources[b.src] == nil {
			source, err := storedSource(name, b.src)
			if err != nil {
				return nil, err
			}
			sources[b.src] = source
		}
		one := v.inner
		strides := ToInt64s(b.strides)
		if len(v.lead) > 0 {
			one, strides = append([]int{1}, one...), append([]int64{0}, strides...)
		}
		var err error
		if parts[i], err = sources[b.src].View(name, ToInt64s(one), int64(b.offset), strides); err != nil {
			return nil, err
		}
	}
	if len(v.lead) == 0 {
		return parts[0], nil
	}
	all, err := onnx.Concat(name, 0, parts)
	if err != nil {
		return nil, err
	}
	return all.View(name, ToInt64s(v.shape()), 0, nil)
}

// storedSource returns the tensor that a reader reads in row-major order.
func storedSource(name string, src reader) (*onnx.Tensor, error) {
	switch src := src.(type) {
	case *encoded:
		return src.tensor, nil
	case *view:
		return src.stored(name)
	case *joined:
		var parts []*onnx.Tensor
		for _, t := range src.parts {
			p, err := t.Stored(name)
			if err != nil {
				return nil, err
			}
			parts = append(parts, p)
		}
		return onnx.Concat(name, src.axis, parts)
	}
	return nil, errComputed
}
