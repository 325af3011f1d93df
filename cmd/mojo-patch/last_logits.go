package main

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// lastPositions returns what a case expects of a model that computes logits of one position: its last position, of the
// outputs that have one where the case has several.
func lastPositions(got, want []*onnx.Tensor) ([]*onnx.Tensor, error) {
	want = slices.Clone(want)
	for i, w := range want {
		at := slices.IndexFunc(got, func(g *onnx.Tensor) bool { return g.Name == w.Name })
		if at < 0 || len(w.Dims) != 3 || w.Dims[1] < 2 ||
			!slices.Equal(got[at].Dims, []int64{w.Dims[0], 1, w.Dims[2]}) || w.DataType.Bits() < 8 {
			continue
		}
		b, err := w.Bytes()
		if err != nil {
			return nil, err
		}
		row := int(w.Dims[2]) * w.DataType.Bits() / 8
		var last []byte
		for at := (int(w.Dims[1]) - 1) * row; at < len(b); at += int(w.Dims[1]) * row {
			last = append(last, b[at:at+row]...)
		}
		if want[i], err = onnx.NewTensor(w.Name, w.DataType, got[at].Dims, last); err != nil {
			return nil, err
		}
	}
	return want, nil
}
