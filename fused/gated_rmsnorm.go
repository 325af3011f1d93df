package fused

import (
	"github.com/mojo-patch/mojo-patch/onnx"
)

// gatedRMSNorm is RMSNorm with a SiLU gate. Linear attention gates the result, Mamba-2 the input of the norm.
var gatedRMSNorm = &Op{
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
	Devices: []Device{CPU, CUDA},
	Inputs: []Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "gate", Type: "G", Dims: "A... D", Doc: "no broadcasting"},
		{Name: "scale", Type: "S", Dims: "D | groups D/groups"},
	},
	Outputs: []Param{{Name: "Y", Type: "G", Dims: "A... D"}},
	Attributes: append([]AttributeSpec{
		{Name: "gate_first", Type: onnx.AttrInt, Bounds: flag, Grid: []any{0, 1},
			Doc: "1: the gate multiplies the input of the norm; 0: it multiplies the result"},
		{Name: "groups", Type: onnx.AttrInt, Bounds: atLeast(1), Grid: []any{1, 2},
			Doc: "number of runs of channels, each normalized separately"},
	}, scaleAttributes...),
	Types: gatedTypes(),
	Where: []Relation{{"groups divides D", "a number of groups that divides the last dimension of X"}},
	Parts: []*Op{rmsNorm, glu},
	Source: "modules of PyTorch transformers: gate_first=0 of Qwen3-Next and OLMo-Hybrid, 1 of Mamba-2, Bamba, " +
		"Zamba2 and Nemotron-H, either of Falcon-H1",
	examples: func(s Site) [][][]int64 {
		d, groups := exampleX[2], Read[GatedRMSNorm](s.Attributes).Groups
		list := [][][]int64{{exampleX, exampleX, {groups, d / groups}}}
		widths := [][]int64{exampleX, {3, 128}}
		if groups == 1 { // a width for each variant of the kernels; groups change nothing in them
			widths = append(widths, []int64{2, 1, 3072}, []int64{2, 12288})
		}
		for _, x := range widths {
			list = append(list, [][]int64{x, x, x[len(x)-1:]})
		}
		return list
	},
	overload: func(s Site) string {
		if Read[GatedRMSNorm](s.Attributes).GateFirst {
			return "gate_first_" + normOverload(s, -1)
		}
		return normOverload(s, -1)
	},
	define: gatedBody,
}

// gatedTypes lists the types of X (T), gate (G) and scale (S). A scan leaves X in float32 when the gate is narrower.
// With unequal types only the result is rounded.
func gatedTypes() []Combination {
	list := []Combination{{Types: map[string]onnx.DataType{"T": f32, "G": f32, "S": f32}}}
	for _, g := range []onnx.DataType{f16, bf16} {
		list = append(list, Combination{Types: map[string]onnx.DataType{"T": g, "G": g, "S": g}})
		for _, types := range []map[string]onnx.DataType{
			{"T": g, "G": g, "S": f32}, {"T": f32, "G": g, "S": f32}, {"T": f32, "G": g, "S": g},
		} {
			list = append(list, Combination{Types: types, Attribute: "scale_after_cast", Value: 0})
		}
	}
	return list
}

func gatedBody(b *body, s Site) []*onnx.Value {
	attrs := Read[GatedRMSNorm](s.Attributes)
	const gate = 1 // Y has the type of this input
	first, after := attrs.GateFirst, attrs.ScaleAfterCast
	rounded := func(name string, v *onnx.Value) *onnx.Value {
		if after {
			return b.rounded(name, v, gate)
		}
		return v
	}
	x, g := b.float32("X_32", b.in[0]), b.float32("gate_32", b.in[gate])
	activated := b.call("activated", "Mul", g, b.call("sigmoid", "Sigmoid", g))
	if first {
		x = b.call("gated", "Mul", x, activated)
	}
	// [..., D] as [..., groups, D/groups], and back.
	shape := b.call("shape", "Shape", x)
	rows := b.slice("rows", shape, nil, b.integers("minus_one", -1), 1)
	runsShape := b.concat("runs_shape", b.concat("rows_groups", rows, b.intAttribute("groups")), b.integers("rest", -1))
	runs := b.call("runs", "Reshape", x, runsShape)
	squares := b.call("squares", "Pow", runs, b.number("two", 2))
	variance := b.call("variance", "Add", b.mean("mean", squares, []int64{-1}), b.attribute("epsilon"))
	y := b.call("normalised", "Div", runs, b.call("deviation", "Sqrt", variance))
	y = b.call("channels", "Reshape", y, shape)
	scale := b.call("scale_row", "Reshape", b.float32("scale_32", b.in[2]), b.integers("all", -1))
	y = b.call("scaled", "Mul", rounded("rounded", y), scale)
	if !first {
		y = b.call("product", "Mul", rounded("scaled_rounded", y), activated)
	}
	return []*onnx.Value{b.round("Y", y, gate)}
}
