package quantized_test

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
)

// TestSameFloats compares elements of a tensor with values that rounding to its type may change.
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
		if err := quantized.SameFloats([]float64{c.want, c.want}, tensor, 1, 2); (err == nil) != c.same {
			t.Errorf("%s %v for %v: %v", c.typ, c.got, c.want, err)
		}
		if quantized.SameFloats([]float64{c.want}, tensor, 0, 1) == nil {
			t.Errorf("9 passes for %v", c.want)
		}
	}
}

// TestFloatsAreCompared: changed floats of weights in a view must be detected.
func TestFloatsAreCompared(t *testing.T) {
	for _, c := range []struct {
		name    string
		typ     onnx.DataType
		product expertProducts
		every   int     // which elements change
		factor  float64 // by this factor
		same    bool
	}{
		{"MatMulNBits", onnx.Float, nBitsProducts(4, 32, true), 1, 1, true},
		{"MatMulNBits", onnx.Float, nBitsProducts(4, 32, true), 1, 1 + 1e-7, true},
		{"MatMulNBits", onnx.Float, nBitsProducts(4, 32, true), 1, 1.0001, false},
		{"MatMulNBits", onnx.Float, nBitsProducts(8, 16, false), 8, 1.005, false},
		{"MatMulNBits", onnx.Float16, nBitsProducts(4, 32, false), 1, 1, true},
		{"MatMulNBits", onnx.Float16, nBitsProducts(4, 32, false), 1, 1.5, false},
		{"blocks", onnx.Float, blockProducts, 1, 1, true},
		{"blocks", onnx.Float, blockProducts, 16, 1.0001, false},
		{"rows", onnx.Float, rowProducts, 1, 1, true},
		{"rows", onnx.Float, rowProducts, 16, 0, false},
	} {
		m := newOther(t, c.typ)
		c.product(m, m.In("x", "tokens", 96), 0, 8, 96)
		i := slices.IndexFunc(m.Model.Graph.Nodes, func(n *onnx.Node) bool { return quantized.StoredCodes(n) != nil })
		err := quantized.CompareChanged(m.Model.Graph, m.Model.Graph.Nodes[i], func(floats *onnx.Tensor) *onnx.Tensor {
			x, err := reference.FromONNX(floats)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(x.F); i += c.every {
				x.F[i] *= c.factor
			}
			changed, err := x.ToONNX("changed")
			if err != nil {
				t.Fatal(err)
			}
			return changed
		})
		if (err == nil) != c.same {
			t.Errorf("%s of %s, every %d times %g: %v", c.name, c.typ, c.every, c.factor, err)
		}
	}
}
