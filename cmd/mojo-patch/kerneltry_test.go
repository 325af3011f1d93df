package main

import (
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestCompareKernel demands equal integers, and floats within the units in the last place that apply allows.
func TestCompareKernel(t *testing.T) {
	floats := func(x ...float32) *onnx.Tensor { return onnx.NewFloat32s("y", []int64{int64(len(x))}, x) }
	ids := func(x ...int64) *onnx.Tensor { return onnx.NewInt64s("y", x) }
	nan := float32(math.NaN())
	unit := math.Float32frombits(math.Float32bits(1)+1) - 1
	for _, c := range []struct {
		name      string
		got, want *onnx.Tensor
		ok        bool
	}{
		{"equal", floats(1, 0), floats(1, 0), true},
		{"16 units", floats(1+16*unit, 0), floats(1, 0), true},
		{"17 units", floats(1+17*unit, 0), floats(1, 0), false},
		{"something for zeros", floats(0, 1e-30), floats(0, 0), false},
		{"no number", floats(nan, 0), floats(1, 0), false},
		{"equal experts", ids(3, 1), ids(3, 1), true},
		{"another expert", ids(3, 2), ids(3, 1), false},
		{"another order", ids(1, 3), ids(3, 1), false},
	} {
		rel, err := compareKernel([]*onnx.Tensor{c.got}, c.want, fused.Lookup("TopKRouter"), fused.Site{})
		if (err == nil) != c.ok || (rel == 0) != strings.HasPrefix(c.name, "equal") {
			t.Errorf("%s: differs by %g, %v", c.name, rel, err)
		}
	}
}
