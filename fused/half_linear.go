package fused

import (
	"github.com/mojo-patch/mojo-patch/onnx"
)

// halfLinear is a product with 16-bit weights, read in their stored layout.
var halfLinear = &Op{
	Name: "HalfLinear",
	Summary: "A product with weights in float16 or bfloat16, read as stored, in either order, and widened in " +
		"registers.",
	Formula: []string{
		"layout=in_out: Y = round_T(float32(X) . float32(W) + float32(bias))",
		"layout=out_in: Y = round_T(float32(X) . float32(W)^T + float32(bias))",
		"sums are in float32",
	},
	Source: "torch.nn.Linear stores [N, K] (out_in); exporters transpose it to [K, N] (in_out) for MatMul",
	Family: linearFamily,
	// GPUs multiply such weights natively.
	Devices: []Device{CPU},
	Inputs: []Param{
		{Name: "X", Type: "T", Dims: "A... K"},
		{Name: "W", Type: "V", Dims: "layout: N K | K N"},
		{Name: "bias", Type: "T", Optional: true, Dims: "N"},
	},
	Outputs: []Param{{Name: "Y", Type: "T", Dims: "A... N"}},
	Attributes: []AttributeSpec{{Name: "layout", Type: onnx.AttrString, Values: []string{layoutOutIn, layoutInOut},
		Doc: "how W is stored"}},
	Types:    halfLinearTypes(),
	examples: halfLinearExamples,
	overload: func(s Site) string { return Read[HalfLinear](s.Attributes).Layout + named(s, HalfLinearBias, "_bias") },
	define:   halfLinearBody,
}

// halfLinearTypes lists the combinations with 16-bit weights.
func halfLinearTypes() []Combination {
	var list []Combination
	for _, c := range independent("T", "V") {
		if c.Types["V"] != f32 {
			list = append(list, c)
		}
	}
	return list
}

// halfLinearExamples covers one row, one tile and several tiles of rows, and sizes that do not fill a vector.
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
