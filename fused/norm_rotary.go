package fused

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// normRotary is RMSNorm of each head of queries or keys, then RotaryEmbedding of the result.
var normRotary = &Op{
	Name:    "NormRotary",
	Summary: "Root-mean-square layer normalization of each head, then rotary position embedding.",
	Formula: []string{
		"normed = RMSNorm(X, scale; axis=-1, epsilon, scale_after_cast)",
		"Y = RotaryEmbedding(normed, cos, sin; interleaved, rotary_dim, rotated_side, output_layout)",
	},
	Inputs: []Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "scale", Type: "S", Dims: "D"},
		{Name: "cos", Type: "N", Dims: rotaryTable, Doc: "as in RotaryEmbedding"},
		{Name: "sin", Type: "N", Dims: rotaryTable, Doc: "as wide as cos"},
	},
	Outputs:    []Param{{Name: "Y", Type: "N", Dims: "A... D"}},
	Family:     rotaryFamily,
	Parts:      []*Op{rmsNorm, rotaryEmbedding},
	Devices:    Devices(),
	Attributes: slices.Concat(scaleAttributes, within("rotary", "RotaryEmbedding", rotaryAttributes)),
	Types:      normTypes,
	Variables:  normVariables,
	Source:     "queries and keys of Qwen3 and Gemma3, whose heads are normalized before the rotation",
	Where:      rotaryWhere,
	check: func(s Site) error {
		if err := normSupports("NormRotary", s, 1); err != nil {
			return err
		}
		return rotarySupports("NormRotary", s, 2)
	},
	examples: func(s Site) [][][]int64 {
		list := rotaryExamples(s)
		for i, dims := range list {
			list[i] = [][]int64{dims[0], exampleX[2:], dims[1], dims[2]}
		}
		return list
	},
	overload: func(s Site) string { return normOverload(s, -1) + "_" + rotaryOverload(s, 2) },
	define: func(b *body, s Site) []*onnx.Value {
		normed := normBody(b, s, "normed", -1, b.in[0], 0, 1)
		return []*onnx.Value{rotaryBody(b, s, normed, 2, 2)}
	},
}
