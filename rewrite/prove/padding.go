package prove

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Padding is one pattern of missing keys in each of several batches.
type Padding struct {
	Name   string
	Exists func(batch, key, keys int) bool
	Empty  bool // a query may have no key
	Right  bool // padding follows the existing keys
}

// The kinds of padding.
var (
	NoPadding    = Padding{"no padding", func(_, _, _ int) bool { return true }, false, true}
	RightPadding = Padding{"padding on the right", func(b, j, n int) bool { return j < max(n-1-b, 1) }, false, true}
	LeftPadding  = Padding{"padding on the left", func(b, j, n int) bool { return j > b%n }, true, false}
	Holes        = Padding{"holes", func(b, j, n int) bool { return j == 0 || (j+b)%3 != 1 }, false, false}
	AllPadding   = Padding{"nothing but padding", func(b, j, n int) bool { return b != 0 }, true, false}

	Paddings = []Padding{NoPadding, RightPadding, LeftPadding, Holes, AllPadding}
)

// Tensor returns 1 for each existing key of each batch, and 0 for the others.
func (p Padding) Tensor(t onnx.DataType, shape []int64) *reference.Tensor {
	batches, keys := int(shape[0]), int(shape[1])
	list := make([]int64, 0, batches*keys)
	for b := range batches {
		for j := range keys {
			x := int64(0)
			if p.Exists(b, j, keys) {
				x = 1
			}
			list = append(list, x)
		}
	}
	dims := []int{batches, keys}
	if !t.IsFloat() {
		return reference.NewInts(t, dims, list)
	}
	floats := make([]float64, len(list))
	for i, x := range list {
		floats[i] = float64(x)
	}
	return reference.NewFloats(t, dims, floats)
}
