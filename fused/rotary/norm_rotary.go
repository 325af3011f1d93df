package rotary

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/fused/rmsnorm"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// normRotary is RMSNorm of each head of queries or keys, then RotaryEmbedding of the result.
var normRotary = &op.Op{
	Name:    "NormRotary",
	Summary: "Root-mean-square layer normalization of each head, then rotary position embedding.",
	Formula: []string{
		"normed = RMSNorm(X, scale; axis=-1, epsilon, scale_after_cast)",
		"Y = RotaryEmbedding(normed, cos, sin; interleaved, rotary_dim, rotated_side, output_layout)",
	},
	Inputs: []op.Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "scale", Type: "S", Dims: "D"},
		{Name: "cos", Type: "N", Dims: rotaryTable, Doc: "as in RotaryEmbedding"},
		{Name: "sin", Type: "N", Dims: rotaryTable, Doc: "as wide as cos"},
	},
	Outputs:    []op.Param{{Name: "Y", Type: "N", Dims: "A... D"}},
	Family:     rotaryFamily,
	Parts:      []*op.Op{rmsnorm.Op, Op},
	Devices:    op.Devices(),
	Attributes: slices.Concat(rmsnorm.ScaleAttributes, op.Within("rotary", "RotaryEmbedding", rotaryAttributes)),
	Types:      rmsnorm.Types,
	Variables:  rmsnorm.Variables,
	Source:     "queries and keys of Qwen3 and Gemma3, whose heads are normalized before the rotation",
	Where:      rotaryWhere,
	Check: func(s op.Site) error {
		if err := rmsnorm.Supports("NormRotary", s, 1); err != nil {
			return err
		}
		return rotarySupports("NormRotary", s, 2)
	},
	Shapes: func(s op.Site) [][][]int64 {
		list := rotaryExamples(s)
		for i, dims := range list {
			list[i] = [][]int64{dims[0], op.ExampleX[2:], dims[1], dims[2]}
		}
		return list
	},
	Variant: func(s op.Site) string { return rmsnorm.Overload(s, -1) + "_" + rotaryOverload(s, 2) },
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{{1, op.WideHeads, 3, 128}, {128}, {3, 64}, {3, 64}},
			onnx.IntAttr("rotary_dim", 128))}
	},
	Body: func(b *op.Body, s op.Site) []*onnx.Value {
		normed := rmsnorm.Norm(b, s, "normed", -1, b.In[0], 0, 1)
		return []*onnx.Value{rotaryBody(b, s, normed, 2, 2)}
	},
}
