package golden

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestNudged moves numbers of every type by one unit in the last place, except special ones.
func TestNudged(t *testing.T) {
	numbers := []float64{1, -1, 1.5, -300, 1e-3, 0, math.Inf(1), math.Inf(-1), math.NaN()}
	for _, dt := range []onnx.DataType{onnx.Float16, onnx.BFloat16, onnx.Float, onnx.Double} {
		b := make([]byte, len(numbers)*dt.Bits()/8)
		for i, x := range numbers {
			PutFloat(dt, b, i, x)
		}
		was, err := onnx.NewTensor("x", dt, []int64{int64(len(numbers))}, b)
		if err != nil {
			t.Fatal(err)
		}
		old, _ := Float64s(was)
		ways := map[bool]int{}
		for seed := range uint64(8) {
			now, err := Nudged(was, seed)
			if err != nil {
				t.Fatal(err)
			}
			again, _ := Nudged(was, seed)
			moved, _ := Float64s(now)
			repeated, _ := Float64s(again)
			for i, x := range moved {
				step := math.Abs(x - old[i])
				switch {
				case i >= 5:
					if x != old[i] && !(x != x && old[i] != old[i]) {
						t.Errorf("%s: %g became %g", dt, old[i], x)
					}
				case step == 0 || step > ulp(dt, old[i]) || repeated[i] != x:
					t.Errorf("%s: %g became %g, and then %g", dt, old[i], x, repeated[i])
				}
				ways[x > old[i]]++
			}
		}
		if ways[true] < 10 || ways[false] < 10 {
			t.Errorf("%s: up and down %v", dt, ways)
		}
	}
	greatest := onnx.NewFloat32s("x", []int64{2}, []float32{math.MaxFloat32, -math.MaxFloat32})
	for seed := range uint64(8) {
		now, _ := Nudged(greatest, seed)
		moved, _ := Float64s(now)
		if math.IsInf(moved[0], 0) || math.IsInf(moved[1], 0) {
			t.Errorf("%v is infinite", moved)
		}
	}
}

// TestNudge moves all weights of a model, but no single numbers.
func TestNudge(t *testing.T) {
	b := onnxtest.New(20)
	pair, one := []float32{1, 2}, []float32{3}
	b.Graph.AddInitializer(onnx.NewFloat32s("weights", []int64{2}, pair))
	b.Graph.AddInitializer(onnx.NewFloat32s("epsilon", []int64{1}, one))
	b.Op("Constant", onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{2}, pair)))
	b.Op("Constant", onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{1}, one)))
	b.Op("Constant", onnx.TensorAttr("value", onnx.NewInt64s("", []int64{1, 2})))
	if err := Nudge(b.Model, 1); err != nil {
		t.Fatal(err)
	}
	check := func(c *onnx.Tensor, moved bool) {
		got, err := Float64s(c)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range got {
			was := float64(pair[i])
			if c.Len() == 1 {
				was = float64(one[i])
			}
			if (x != was) != moved || math.Abs(x-was) > 1e-6 {
				t.Errorf("%s of %d elements: %v became %v", c.DataType, c.Len(), was, x)
			}
		}
	}
	for _, v := range b.Graph.Initializers() {
		check(v.Const, v.Const.Len() > 1)
	}
	for _, n := range b.Graph.Nodes {
		c := n.Attr("value").Tensor
		check(c, c.Len() > 1 && c.DataType == onnx.Float)
	}
}
