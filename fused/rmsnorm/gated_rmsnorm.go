package rmsnorm

import (
	"github.com/mojo-patch/mojo-patch/fused/glu"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// gatedRMSNorm is RMSNorm with a SiLU gate. Linear attention gates the result, Mamba-2 the input of the norm.
var gatedRMSNorm = &op.Op{
	Name:    "GatedRMSNorm",
	Summary: "Root-mean-square layer normalization, over groups of channels, with a SiLU gate before or after it.",
	Formula: []string{
		"a = float32(gate) * sigmoid(float32(gate));  v = gate_first ? float32(X) * a : float32(X);  b = gate_first " +
			"? 1 : a",
		"n = v / sqrt(mean(v^2, each of groups runs of D/groups channels) + epsilon)",
		"scale_after_cast=0: Y = round_G(n * float32(scale) * b)",
		"scale_after_cast=1: Y = round_G(round_G(round_G(n) * scale) * b)",
	},
	Family:  normFamily,
	Devices: []op.Device{op.CPU, op.CUDA},
	Inputs: []op.Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "gate", Type: "G", Dims: "A... D", Doc: "no broadcasting"},
		{Name: "scale", Type: "S", Dims: "D | groups D/groups"},
	},
	Outputs: []op.Param{{Name: "Y", Type: "G", Dims: "A... D"}},
	Attributes: append([]op.AttributeSpec{
		{Name: "gate_first", Type: onnx.AttrInt, Bounds: op.Flag, Grid: []any{0, 1},
			Doc: "1: the gate multiplies the input of the norm; 0: it multiplies the result"},
		{Name: "groups", Type: onnx.AttrInt, Bounds: op.AtLeast(1), Grid: []any{1, 2},
			Doc: "number of runs of channels, each normalized separately"},
	}, ScaleAttributes...),
	Types: gatedTypes(),
	Where: []op.Relation{{Text: "groups divides D", Doc: "a number of groups that divides the last dimension of X"}},
	Parts: []*op.Op{Op, glu.Op},
	Source: "modules of PyTorch transformers: gate_first=0 of Qwen3-Next and OLMo-Hybrid, 1 of Mamba-2, Bamba, " +
		"Zamba2 and Nemotron-H, either of Falcon-H1",
	Shapes: func(s op.Site) [][][]int64 {
		d, groups := op.ExampleX[2], op.Read[GatedRMSNorm](s.Attributes).Groups
		list := [][][]int64{{op.ExampleX, op.ExampleX, {groups, d / groups}}}
		widths := [][]int64{op.ExampleX, {3, 128}}
		if groups == 1 { // a width for each variant of the kernels; groups change nothing in them
			widths = append(widths, []int64{2, 1, 3072}, []int64{2, 12288})
		}
		for _, x := range widths {
			list = append(list, [][]int64{x, x, x[len(x)-1:]})
		}
		return list
	},
	Variant: func(s op.Site) string {
		if op.Read[GatedRMSNorm](s.Attributes).GateFirst {
			return "gate_first_" + Overload(s, -1)
		}
		return Overload(s, -1)
	},
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{op.WideRow, op.WideRow, op.WideRow[1:]})}
	},
	Body: gatedBody,
}

// gatedTypes lists the types of X (T), gate (G) and scale (S). A scan leaves X in float32 when the gate is narrower.
// With unequal types only the result is rounded.
func gatedTypes() []op.Combination {
	list := []op.Combination{{Types: map[string]onnx.DataType{"T": op.F32, "G": op.F32, "S": op.F32}}}
	for _, g := range []onnx.DataType{op.F16, op.BF16} {
		list = append(list, op.Combination{Types: map[string]onnx.DataType{"T": g, "G": g, "S": g}})
		for _, types := range []map[string]onnx.DataType{
			{"T": g, "G": g, "S": op.F32}, {"T": op.F32, "G": g, "S": op.F32}, {"T": op.F32, "G": g, "S": g},
		} {
			list = append(list, op.Combination{Types: types, Attribute: "scale_after_cast", Value: 0})
		}
	}
	return list
}

func gatedBody(b *op.Body, s op.Site) []*onnx.Value {
	attrs := op.Read[GatedRMSNorm](s.Attributes)
	const gate = 1 // Y has the type of this input
	first, after := attrs.GateFirst, attrs.ScaleAfterCast
	rounded := func(name string, v *onnx.Value) *onnx.Value {
		if after {
			return b.Rounded(name, v, gate)
		}
		return v
	}
	x, g := b.Float32("X_32", b.In[0]), b.Float32("gate_32", b.In[gate])
	activated := b.Call("activated", "Mul", g, b.Call("sigmoid", "Sigmoid", g))
	if first {
		x = b.Call("gated", "Mul", x, activated)
	}
	// [..., D] as [..., groups, D/groups], and back.
	shape := b.Call("shape", "Shape", x)
	rows := b.Slice("rows", shape, nil, b.Integers("minus_one", -1), 1)
	runsShape := b.Concat("runs_shape", b.Concat("rows_groups", rows, b.IntAttribute("groups")), b.Integers("rest", -1))
	runs := b.Call("runs", "Reshape", x, runsShape)
	squares := b.Call("squares", "Pow", runs, b.Number("two", 2))
	variance := b.Call("variance", "Add", b.Mean("mean", squares, []int64{-1}), b.Attribute("epsilon"))
	y := b.Call("normalised", "Div", runs, b.Call("deviation", "Sqrt", variance))
	y = b.Call("channels", "Reshape", y, shape)
	scale := b.Call("scale_row", "Reshape", b.Float32("scale_32", b.In[2]), b.Integers("all", -1))
	y = b.Call("scaled", "Mul", rounded("rounded", y), scale)
	if !first {
		y = b.Call("product", "Mul", rounded("scaled_rounded", y), activated)
	}
	return []*onnx.Value{b.Round("Y", y, gate)}
}
