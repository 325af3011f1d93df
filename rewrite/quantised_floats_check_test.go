package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestSameFloats compares elements of a tensor with what its type may make of them.
func TestSameFloats(t *testing.T) {
	for _, c := range []struct {
		typ       onnx.DataType
		want, got float64
		same      bool
	}{
		{onnx.Float, 1, 1, true},
		{onnx.Float, -3, -3.000001, true},
		{onnx.Float, 1, 1.00001, false},
		{onnx.Float, 0, 1e-8, false},
		{onnx.Float16, 1, 1.005, true},
		{onnx.Float16, 0, 5e-8, true},
		{onnx.Float16, 1, 1.02, false},
		{onnx.BFloat16, -1, 1, false},
	} {
		tensor, err := reference.NewFloats(c.typ, []int{4}, []float64{9, c.got, 9, c.got}).ToONNX("t")
		if err != nil {
			t.Fatal(err)
		}
		if err := sameFloats([]float64{c.want, c.want}, tensor, 1, 2); (err == nil) != c.same {
			t.Errorf("%s %v for %v: %v", c.typ, c.got, c.want, err)
		}
		if sameFloats([]float64{c.want}, tensor, 0, 1) == nil {
			t.Errorf("9 passes for %v", c.want)
		}
	}
}
