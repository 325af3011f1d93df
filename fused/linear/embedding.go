package linear

import (
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// embedding looks up rows of a table stored like the weights of Linear, so that both ops can share it.
var embedding = &op.Op{
	Name:       "Embedding",
	Summary:    "Rows of a table quantized in blocks of 4 or 8 bits; Linear takes the same table.",
	Formula:    []string{"Y[...] = W[ids[...]], with W as in Linear; a negative id counts from the end"},
	Source:     "as Linear",
	Family:     linearFamily,
	Devices:    []op.Device{op.CPU, op.CUDA},
	Inputs:     append([]op.Param{{Name: "ids", Type: "int64", Dims: "A...", Doc: "from -n to n - 1"}}, quantizedParams...),
	Outputs:    []op.Param{{Name: "Y", Type: "float32", Dims: "A... k"}},
	Attributes: QuantizedAttributes,
	Rules:      QuantizedRules("", "k"),
	Types:      ScaleTypes(op.Combination{}),
	Let:        quantizedLet,
	Check: func(s op.Site) error {
		return Weights(nil, s, EmbeddingCodes).Check("Embedding")
	},
	Shapes:  embeddingExamples,
	Variant: func(s op.Site) string { return Weights(nil, s, EmbeddingCodes).Overload() },
	Wide: func(form op.FormMaker) []op.Form {
		return wideQuantized(func(f QuantizedForm, n, k int64) op.Form {
			weights := Embedding{f.Code, f.Zero, f.Block, n, k}
			return form(append([][]int64{{3}}, f.weights(weights.Attributes())...), weights.Attributes()...)
		}, false)
	},
	Body: func(b *op.Body, s op.Site) []*onnx.Value {
		w := Weights(b, s, EmbeddingCodes)
		table := w.rowsOf("W", w.values(), b.IntAttribute("k"))
		return []*onnx.Value{b.Op("Y", "Gather", []*onnx.Value{table, b.In[EmbeddingIDs]}, onnx.IntAttr("axis", 0))}
	},
}
