package fused

import (
	"github.com/mojo-patch/mojo-patch/onnx"
)

// embedding looks up rows of a table stored like the weights of Linear, so that both ops can share it.
var embedding = &Op{
	Name:       "Embedding",
	Summary:    "Rows of a table quantized in blocks of 4 or 8 bits; Linear takes the same table.",
	Formula:    []string{"Y[...] = W[ids[...]], with W as in Linear; a negative id counts from the end"},
	Source:     "as Linear",
	Family:     linearFamily,
	Devices:    []Device{CPU, CUDA},
	Inputs:     append([]Param{{Name: "ids", Type: "int64", Dims: "A...", Doc: "from -n to n - 1"}}, quantizedParams...),
	Outputs:    []Param{{Name: "Y", Type: "float32", Dims: "A... k"}},
	Attributes: quantizedAttributes,
	Rules:      quantizedRules("", "k"),
	Types:      scaleTypes(Combination{}),
	Let:        quantizedLet,
	check: func(s Site) error {
		return quantizedWeights(nil, s, EmbeddingCodes).check("Embedding")
	},
	examples: embeddingExamples,
	overload: func(s Site) string { return quantizedWeights(nil, s, EmbeddingCodes).overload() },
	define: func(b *body, s Site) []*onnx.Value {
		w := quantizedWeights(b, s, EmbeddingCodes)
		table := w.rowsOf("W", w.values(), b.intAttribute("k"))
		return []*onnx.Value{b.op("Y", "Gather", []*onnx.Value{table, b.in[EmbeddingIDs]}, onnx.IntAttr("axis", 0))}
	},
}
