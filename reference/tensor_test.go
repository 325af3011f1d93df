package reference

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
)

func TestPackedRoundTrip(t *testing.T) {
	for _, typ := range []onnx.DataType{onnx.Int4, onnx.Uint4, onnx.Int2, onnx.Uint2, onnx.Int8, onnx.Uint16,
		onnx.Int32, onnx.Uint64, onnx.Bool} {
		lo, hi := elements.Range(typ)
		x := NewInts(typ, []int{3}, []int64{lo, hi, lo})
		p, err := x.ToONNX("x")
		if err != nil {
			t.Fatal(err)
		}
		back, err := FromONNX(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := closeTo(back, x, 0, 0); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
	}
	s := &Tensor{DataType: onnx.String, Shape: []int{2}, S: []string{"", "é"}}
	p, err := s.ToONNX("s")
	if err != nil {
		t.Fatal(err)
	}
	if back, err := FromONNX(p); err != nil || closeTo(back, s, 0, 0) != nil {
		t.Errorf("strings come back as %v, %v", back, err)
	}
}
