package reference

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The standard's node tests have only the newest opset. These are the results of onnxruntime 1.32 for a row of the
// powers of 2.
func TestResizeOfOldOpsets(t *testing.T) {
	for _, c := range []struct {
		opset             int64
		t                 onnx.DataType
		scale             float32
		size              int64
		mode, at, nearest string
		want              []float64
	}{
		{10, onnx.Float, 0.6, 0, "nearest", "", "", []float64{1, 4, 16, 32}},
		{10, onnx.Float, 1.5, 0, "nearest", "", "", []float64{1, 1, 2, 4, 4, 8, 16, 16, 32, 64}},
		{10, onnx.Float, 0.6, 0, "linear", "", "", []float64{1, 10. / 3, 32. / 3, 32}},
		{11, onnx.Float, 0.6, 0, "nearest", "tf_half_pixel_for_nn", "floor", []float64{1, 4, 16, 32}},
		{11, onnx.Float, 0.6, 0, "nearest", "half_pixel", "floor", []float64{1, 4, 8, 32}},
		{11, onnx.Float, 0, 1, "linear", "pytorch_half_pixel", "", []float64{1}},
		{13, onnx.Int32, 0, 4, "linear", "align_corners", "", []float64{1, 4, 16, 64}},
		{13, onnx.Int32, 0, 3, "linear", "half_pixel", "", []float64{1, 8, 42}},
	} {
		x := NewFloats(onnx.Float, []int{1, 7}, []float64{1, 2, 4, 8, 16, 32, 64})
		if c.t == onnx.Int32 {
			x = NewInts(c.t, []int{1, 7}, []int64{1, 2, 4, 8, 16, 32, 64})
		}
		scales, sizes := NewFloats(onnx.Float, []int{2}, []float64{1, float64(c.scale)}), (*Tensor)(nil)
		if c.size > 0 {
			scales, sizes = nil, NewInts(onnx.Int64, []int{2}, []int64{1, c.size})
		}
		in := []*Tensor{x, nil, scales, sizes}
		if c.opset == 10 {
			in = []*Tensor{x, scales}
		}
		n := &onnx.Node{OpType: "Resize", Attributes: []*onnx.Attribute{onnx.StringAttr("mode", c.mode)}}
		if c.at != "" {
			n.Attributes = append(n.Attributes, onnx.StringAttr("coordinate_transformation_mode", c.at),
				onnx.StringAttr("nearest_mode", c.nearest))
		}
		out, err := NewForOpset(c.opset, nil, Options{}).Op(n, in)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		got := out[0].Floats()
		for i, want := range c.want {
			if len(got) != len(c.want) || math.Abs(got[i]-want) > 1e-5 {
				t.Errorf("%+v: %v", c, got)
				break
			}
		}
	}
}
