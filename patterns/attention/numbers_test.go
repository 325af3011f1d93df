package attention

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestSquare: a table has as many queries as keys, more than the usual lengths, and one number for each pair.
func TestSquare(t *testing.T) {
	const n = alwaysSeen + 1
	for _, c := range []struct {
		dims   []int64
		square bool
	}{
		{[]int64{n, n}, true},
		{[]int64{1, 1, n, n}, true},
		{[]int64{1, 2, n, n}, false},
		{[]int64{n, n - 1}, false},
		{[]int64{alwaysSeen, alwaysSeen}, false},
		{[]int64{n}, false},
	} {
		size := 1
		for _, d := range c.dims {
			size *= int(d)
		}
		if got := square(onnx.NewFloat32s("", c.dims, make([]float32, size))); got != c.square {
			t.Errorf("%v: %v", c.dims, got)
		}
	}
}
