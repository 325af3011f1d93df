package linear

import (
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// halfLinear is a product with 16-bit weights, read in their stored layout.
var halfLinear = &op.Op{
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
	Devices: []op.Device{op.CPU},
	Inputs: []op.Param{
		{Name: "X", Type: "T", Dims: "A... K"},
		{Name: "W", Type: "V", Dims: "layout: N K | K N"},
		{Name: "bias", Type: "T", Optional: true, Dims: "N"},
	},
	Outputs: []op.Param{{Name: "Y", Type: "T", Dims: "A... N"}},
	Attributes: []op.AttributeSpec{{Name: "layout", Type: onnx.AttrString,
		Values: []string{op.LayoutOutIn, op.LayoutInOut},
		Doc:    "how W is stored"}},
	Types:  halfLinearTypes(),
	Shapes: halfLinearExamples,
	Variant: func(s op.Site) string {
		return op.Read[HalfLinear](s.Attributes).Layout + op.IfGiven(s, HalfLinearBias, "_bias")
	},
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{{3, op.WideInner}, {5, op.WideInner}}),
			form([][]int64{{3, 32}, {op.WideVocabulary, 32}}),
			form([][]int64{{3, op.WideInner}, {op.WideInner, 5}}, onnx.StringAttr("layout", op.LayoutInOut))}
	},
	Body: halfLinearBody,
}

// halfLinearTypes lists the combinations with 16-bit weights.
func halfLinearTypes() []op.Combination {
	var list []op.Combination
	for _, c := range op.Independent("T", "V") {
		if c.Types["V"] != op.F32 {
			list = append(list, c)
		}
	}
	return list
}

// halfLinearExamples covers one row, one tile, several tiles of rows and a panel, and sizes that do not fill a vector.
func halfLinearExamples(s op.Site) [][][]int64 {
	var list [][][]int64
	for _, x := range [][]int64{{70}, {2, 3, 70}, {19, 290}, {1, 1040}, {0, 8}, {3, 0}} {
		k, n := x[len(x)-1], int64(37)
		w := []int64{k, n}
		if op.Read[HalfLinear](s.Attributes).Layout == op.LayoutOutIn {
			w = []int64{n, k}
		}
		list = append(list, [][]int64{x, w}, [][]int64{x, w, {n}})
	}
	return list
}

func halfLinearBody(b *op.Body, s op.Site) []*onnx.Value {
	w := b.Float32("W_32", b.In[HalfLinearW])
	if op.Read[HalfLinear](s.Attributes).Layout == op.LayoutOutIn {
		w = b.Op("W_turned", "Transpose", []*onnx.Value{w}, onnx.IntsAttr("perm", []int64{1, 0}))
	}
	y := b.Call("product", "MatMul", b.Float32("X_32", b.In[HalfLinearX]), w)
	if s.Has(HalfLinearBias) {
		y = b.Call("biased", "Add", y, b.Float32("bias_32", b.In[HalfLinearBias]))
	}
	return []*onnx.Value{b.Round("Y", y, HalfLinearX)}
}
