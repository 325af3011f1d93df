package golden_test

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestLists(t *testing.T) {
	ids, err := golden.Int64s(onnx.NewInt64s("ids", []int64{3, -1, 1 << 40}))
	if err != nil || !slices.Equal(ids, []int64{3, -1, 1 << 40}) {
		t.Errorf("%v, %v", ids, err)
	}
	half, err := onnx.NewTensor("half", onnx.Float16, []int64{2}, []byte{0, 0x3c, 0, 0xc0})
	if err != nil {
		t.Fatal(err)
	}
	floats, err := golden.Float64s(half)
	if err != nil || !slices.Equal(floats, []float64{1, -2}) {
		t.Errorf("%v, %v", floats, err)
	}
	if _, err := golden.Int64s(half); err == nil {
		t.Error("floats pass for integers")
	}
}
