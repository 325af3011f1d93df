package fused

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// normRotary is RMSNorm of each head, then RotaryEmbedding of the result: what becomes of queries and keys.
var normRotary = &Op{
	Name:    "NormRotary",
	Summary: "Root-mean-square layer normalisation of each head, then rotary position embedding.",
	Formula: []string{
		"normed = RMSNorm(X, scale; axis=-1, epsilon, scale_after_cast)",
		"Y = RotaryEmbedding(normed, cos, sin; interleaved, rotary_dim, rotated_side, output_layout)",
	},
	Inputs: []Param{
		{Name: "X", Type: "T", Doc: "rank at least 1, last dimension D"},
		{Name: "scale", Type: "S", Doc: "[D]"},
		{Name: "cos", Type: "N", Doc: "as of RotaryEmbedding"},
		{Name: "sin", Type: "N", Doc: "as cos, with the same last dimension"},
	},
	Outputs:    []Param{{Name: "Y", Type: "N", Doc: "shape of X"}},
	Attributes: append(append([]AttributeSpec(nil), scaleAttributes...), rotaryAttributes...),
	Types:      normTypes + ". N is the type of RMSNorm's result: T with scale_after_cast=0, S with scale_after_cast=1",
	Source:     "queries and keys of Qwen3 and Gemma3, each head of which is normalised before it is rotated",
	supports: func(s Site) error {
		if err := normSupports("NormRotary", s, -1, 0, 1); err != nil {
			return err
		}
		n := normOutputType(s, 0, 1)
		for i, name := range []string{"cos", "sin"} {
			if t := s.Types[2+i]; t != n {
				return fmt.Errorf("mojo.NormRotary takes cos and sin of the type of the norm's result, %s: %s is %s", n, name, t)
			}
		}
		return rotarySupports("NormRotary", s, 2)
	},
	outputTypes: func(s Site) []onnx.DataType { return []onnx.DataType{normOutputType(s, 0, 1)} },
	overload:    func(s Site) string { return normOverload(s, -1) + "_" + rotaryOverload(s, 2) },
	define: func(b *body, s Site) []*onnx.Value {
		normed := normBody(b, s, "normed", -1, b.in[0], 0, 1)
		return []*onnx.Value{rotaryBody(b, s, normed, 2, 2)}
	},
}
