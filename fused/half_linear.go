package fused

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The inputs of HalfLinear, in order.
const (
	HalfLinearX = iota
	HalfLinearW
	HalfLinearBias
)

// halfLinear is a product with weights of 16 bits, which are read as they lie.
var halfLinear = &Op{
	Name: "HalfLinear",
	Summary: "A product with weights in float16 or bfloat16, which are read as they are stored, in either order, and " +
		"widened in registers.",
	Formula: []string{
		"layout=in_out: Y = round_T(float32(X) . float32(W) + float32(bias))",
		"layout=out_in: Y = round_T(float32(X) . float32(W)^T + float32(bias))",
		"sums are in float32",
	},
	Source: "torch.nn.Linear stores [N, K] (out_in); exporters transpose it to [K, N] (in_out) for MatMul",
	Family: linearFamily,
	// A GPU multiplies such weights by itself.
	Devices: []Device{CPU},
	Inputs: []Param{
		{Name: "X", Type: "T", Doc: "[..., K]"},
		{Name: "W", Type: "V", Doc: "[K, N] with layout=in_out, [N, K] with out_in"},
		{Name: "bias", Type: "T", Optional: true, Doc: "[N]"},
	},
	Outputs: []Param{{Name: "Y", Type: "T", Doc: "[..., N]"}},
	Attributes: []AttributeSpec{{Name: "layout", Type: onnx.AttrString, Values: []string{layoutOutIn, layoutInOut},
		Doc: "how W is stored"}},
	Types:    halfLinearTypes(),
	check:    halfLinearSupports,
	shapes:   halfLinearShapes,
	examples: halfLinearExamples,
	overload: func(s Site) string { return Read[HalfLinear](s.Attributes).Layout + named(s, HalfLinearBias, "_bias") },
	define:   halfLinearBody,
}

// halfLinearTypes are those of X with weights of 16 bits.
func halfLinearTypes() []Combination {
	var list []Combination
	for _, c := range independent("T", "V") {
		if c.Types["V"] != f32 {
			list = append(list, c)
		}
	}
	return list
}

// halfLinearSizes are the places of K and N in the shape of W.
func halfLinearSizes(s Site) (k, n int) {
	if Read[HalfLinear](s.Attributes).Layout == layoutOutIn {
		return 1, 0
	}
	return 0, 1
}

func halfLinearShapes(s Site, equal func(a, b int64) int64) [][]int64 {
	x, w := s.dims(HalfLinearX), s.dims(HalfLinearW)
	if len(w) != 2 {
		return [][]int64{withLast(x, -1)}
	}
	k, n := halfLinearSizes(s)
	if len(x) > 0 {
		equal(x[len(x)-1], w[k])
	}
	return [][]int64{withLast(x, w[n])}
}

func halfLinearSupports(s Site) error {
	attrs := Read[HalfLinear](s.Attributes)
	x, w := s.dims(HalfLinearX), s.dims(HalfLinearW)
	if w != nil && len(w) != 2 {
		return fmt.Errorf("mojo.HalfLinear takes W of rank 2, not %v", w)
	}
	if x != nil && len(x) == 0 {
		return fmt.Errorf("mojo.HalfLinear takes X of rank 1 or more, not of rank 0")
	}
	k, n := halfLinearSizes(s)
	if w != nil && x != nil && !agree(x[len(x)-1:], w[k:k+1]) {
		return fmt.Errorf("mojo.HalfLinear takes X of shape [..., K]: X is %v, and W %v with layout %q", x, w,
			attrs.Layout)
	}
	if d := s.dims(HalfLinearBias); w != nil && d != nil && !agree(d, w[n:n+1]) {
		return fmt.Errorf("mojo.HalfLinear takes a bias of shape [N]: bias is %v, and W %v with layout %q", d, w,
			attrs.Layout)
	}
	return nil
}

// halfLinearExamples have one row, rows of one tile of the kernels and rows of several, and sizes that fill no vector.
func halfLinearExamples(s Site) [][][]int64 {
	var list [][][]int64
	for _, x := range [][]int64{{70}, {2, 3, 70}, {19, 33}, {1, 1040}, {0, 8}, {3, 0}} {
		k, n := x[len(x)-1], int64(37)
		w := []int64{k, n}
		if Read[HalfLinear](s.Attributes).Layout == layoutOutIn {
			w = []int64{n, k}
		}
		list = append(list, [][]int64{x, w}, [][]int64{x, w, {n}})
	}
	return list
}

func halfLinearBody(b *body, s Site) []*onnx.Value {
	w := b.float32("W_32", b.in[HalfLinearW])
	if Read[HalfLinear](s.Attributes).Layout == layoutOutIn {
		w = b.op("W_turned", "Transpose", []*onnx.Value{w}, onnx.IntsAttr("perm", []int64{1, 0}))
	}
	y := b.call("product", "MatMul", b.float32("X_32", b.in[HalfLinearX]), w)
	if s.has(HalfLinearBias) {
		y = b.call("biased", "Add", y, b.float32("bias_32", b.in[HalfLinearBias]))
	}
	return []*onnx.Value{b.round("Y", y, HalfLinearX)}
}
