// Package linear has products with weights that stay as stored, and the table of an embedding.
package linear

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op, halfLinear, embedding}

// The values of the string attributes of Linear and Embedding.
const (
	codeInt4 = "int4"
	codeInt8 = "int8"
	codeE2M1 = "e2m1"
	CodeE4M3 = "e4m3"

	ActivationsFloat = "float"
	ActivationsInt16 = "int16"
	ActivationsInt8  = "int8"
	ActivationsFP8   = "fp8"
)

const (
	panelRows  = 16  // rows of the weights that are interleaved
	CodeBlock  = 32  // columns whose codes are interleaved, and whose activations share a factor
	superBlock = 256 // columns that share the second factor of two-level scales
	floatBlock = 128 // columns that share a scale with code=e4m3, and a factor with activations=fp8
)

// The shapes of codes and scales for each value of code.
const (
	CodesDims op.Shape = "code: P k/32 4 64 | P k/32 8 64 | P k/32 4 64 | P k/32 8 64"
	SuperDims op.Shape = "P k/256 16"
	ScaleDims op.Shape = "code: P k/block 16 | P k/block 16 | P k/block 16 | P k/block 1"
)

// quantizedLet defines P: weights are stored in panels of 16 rows.
var quantizedLet = map[string]op.Shape{"P": "(n+15)/16"}

// quantizedParams are the inputs that hold the weights.
var quantizedParams = []op.Param{
	{Name: "codes", Type: "uint8", Dims: CodesDims},
	{Name: "scale", Type: "S", Dims: ScaleDims,
		Doc: "float32 or float16; int8 with super_scale; uint8 with code=e2m1; float32 with code=e4m3"},
	{Name: "minus", Type: "S", Optional: true, Dims: ScaleDims},
	{Name: "super_scale", Type: "float16", Optional: true, Dims: SuperDims},
	{Name: "super_minus", Type: "float16", Optional: true, Dims: SuperDims,
		Doc: "given if minus and super_scale are"},
}

// QuantizedAttributes describe how the weights are stored.
var QuantizedAttributes = []op.AttributeSpec{
	{Name: "code", Type: onnx.AttrString, Values: []string{codeInt4, codeInt8, codeE2M1, CodeE4M3},
		Doc: "type of a code: unsigned of 4 or 8 bits, or floating point of 4 or 8 bits"},
	{Name: "zero", Type: onnx.AttrInt, Bounds: op.Bounds{Least: 0, Most: 255}, Grid: []any{0, 8, 112, 128},
		Doc: "the code of 0 if minus is left out; 0 with code=e2m1 and e4m3"},
	{Name: "block", Type: onnx.AttrInt, Bounds: op.Only(16, CodeBlock, floatBlock), Grid: []any{16, 32, 128},
		Doc: "columns that share a scale: 16 or 32 with integer codes, 32 with e2m1, 128 with e4m3"},
	{Name: "n", Type: onnx.AttrInt, Bounds: op.Multiples(1), Grid: []any{5, 37}, Doc: "rows of W"},
	{Name: "k", Type: onnx.AttrInt, Bounds: op.Multiples(CodeBlock), Grid: []any{96, 256, 512},
		Doc: "columns of W: a multiple of 32, of 256 with super_scale, of 128 with code=e4m3"},
}

// QuantizedRules returns the rules of the attributes that describe how a matrix is stored. The names of zero, block and
// code begin with prefix; columns names the attribute with the number of columns.
func QuantizedRules(prefix, columns string) []op.Rule {
	code := prefix + "code"
	return []op.Rule{
		{Attribute: prefix + "zero", Bounds: op.Bounds{Least: 0, Most: 15}, With: code, Is: []string{codeInt4}},
		{Attribute: prefix + "zero", Bounds: op.Only(0), With: code, Is: []string{codeE2M1, CodeE4M3}},
		{Attribute: prefix + "block", Bounds: op.Only(16, CodeBlock), With: code, Is: []string{codeInt4, codeInt8}},
		{Attribute: prefix + "block", Bounds: op.Only(CodeBlock), With: code, Is: []string{codeE2M1}},
		{Attribute: prefix + "block", Bounds: op.Only(floatBlock), With: code, Is: []string{CodeE4M3}},
		{Attribute: columns, Bounds: op.Multiples(floatBlock), With: code, Is: []string{CodeE4M3}},
	}
}

// ActivationRules returns the rules of activations that depend on the attribute named code.
func ActivationRules(code string) []op.Rule {
	return []op.Rule{
		{Attribute: "activations", Values: []string{ActivationsFloat, ActivationsFP8}, With: code,
			Is: []string{CodeE4M3}},
		{Attribute: "activations", Values: []string{ActivationsFloat, ActivationsInt16, ActivationsInt8}, With: code,
			Is: []string{CodeE4M3}, Not: true},
	}
}

var linearFamily = &op.Family{Name: "linear", Summary: "products with weights that stay quantized",
	Stored: true}

// Op is a product with weights that stay quantized.
var Op = &op.Op{
	Name: "Linear",
	Summary: "A product with weights quantized in blocks of 4 or 8 bits, read as stored; the definition includes the " +
		"rounding of the activations.",
	Formula: []string{
		"row r of panel p is row 16p + r of the n rows of W; the code of its column 32b + c, with j and i " +
			"such that",
		"  int4, e2m1: c = 4j + i: low, c = 16 + 4j + i: high half of codes[p, b, j, 4r + i]",
		"  int8, e4m3: c = 4j + i: codes[p, b, j, 4r + i]",
		"its scale and minus are at [p, (32b + c) / block, r], its super_scale s and super_minus t at " +
			"[p, (32b + c) / 256, r]; with e4m3 the rows of a panel share a scale",
		"all in float32",
		"  d = scale; if super_scale is given: d = s * scale; code=e2m1: d = 2^(scale - 127), NaN for 255",
		"  m = minus; if super_minus is given: m = t * minus; if minus is left out: m = 0",
		"  int4, int8: W = d * (code - zero) + m",
		"  e2m1: W = d * v, v = 0, 0.5, 1, 1.5, 2, 3, 4, 6 for the codes from 0 on, and the negatives from 8 on",
		"  e4m3: W = d * v, v = the code read as float8e4m3fn: NaN for 127 and 255",
		"activations=float: Y = round_T(X . W^T + bias)",
		"activations=int8, int16: L = 127, 32767; z = 8 for int4, 128 for int8, 0 for e2m1; for 32 columns of a row " +
			"of X:",
		"  a = max of |x|;  x' = a < 2^-100 ? 0 : round(x * (L / a)) * (a / L), to the nearest, halves to even",
		"  Y = round_T(sum over columns of d * (code - z) * x' + sum over blocks of (m + d * (z - zero)) * " +
			"(sum of x) + bias)",
		"activations=fp8, only with e4m3: for 128 columns of a row of X:",
		"  a = max of |x|;  x' = a < 2^-100 ? 0 : e4m3(x * (448 / a)) * (a / 448), to the nearest float8e4m3fn, " +
			"halves to even",
		"  Y = round_T(X' . W^T + bias)",
	},
	Source: "the block formats of GGUF (q4_0 to q6_K), of OCP Microscaling Formats (2023, MXFP4) and of DeepSeek-V3 " +
		"(e4m3 with a scale for 128 x 128, and its activations by token and 128 channels); int8 activations as in " +
		"llama.cpp, with sums of the activations themselves",
	Family:  linearFamily,
	Devices: []op.Device{op.CPU, op.CUDA},
	Partial: []op.Partial{{Device: op.CUDA, Attribute: "code", Value: CodeE4M3}}, // Hopper's tensor cores multiply it
	Inputs: append(append([]op.Param{{Name: "X", Type: "T", Dims: "A... k"}}, quantizedParams...),
		op.Param{Name: "bias", Type: "T", Optional: true, Dims: "n"}),
	Outputs: []op.Param{{Name: "Y", Type: "T", Dims: "A... n"}},
	Attributes: append(op.Within("weights", "Embedding", QuantizedAttributes),
		op.AttributeSpec{Name: "activations", Type: onnx.AttrString,
			Values: []string{ActivationsFloat, ActivationsInt16, ActivationsInt8, ActivationsFP8},
			Doc: "type that X is rounded to before the product: int8 loses visibly, int16 next to nothing; " +
				"code=e4m3 takes float or fp8, and only it takes fp8"}),
	Rules:  append(QuantizedRules("", "k"), ActivationRules("code")...),
	Types:  linearTypes(),
	Let:    quantizedLet,
	Check:  func(s op.Site) error { return LinearWeights(nil, s).Check("Linear") },
	Shapes: linearExamples,
	Variant: func(s op.Site) string {
		kind := op.Read[Linear](s.Attributes).Activations
		return LinearWeights(nil, s).Overload() + "_" + kind + op.IfGiven(s, LinearBias, "_bias")
	},
	Wide: func(form op.FormMaker) []op.Form {
		return wideQuantized(func(f QuantizedForm, n, k int64) op.Form {
			weights := Linear{Embedding{f.Code, f.Zero, f.Block, n, k}, f.activations}
			return form(append([][]int64{{3, k}}, f.weights(weights.Attributes())...), weights.Attributes()...)
		}, true)
	},
	Body: linearBody,
}

func linearTypes() []op.Combination {
	var list []op.Combination
	for _, c := range op.Independent("T") {
		list = append(list, ScaleTypes(c)...)
	}
	return list
}

// ScaleTypes returns c with each type of scales.
func ScaleTypes(c op.Combination) []op.Combination {
	var list []op.Combination
	for _, t := range []onnx.DataType{op.F32, op.F16, onnx.Int8, onnx.Uint8} {
		list = append(list, c.With("S", t))
	}
	return list
}

func linearBody(b *op.Body, s op.Site) []*onnx.Value {
	x, shape := b.Rows("X_rows", b.In[LinearX])
	y := Product(b, s, b.Float32("X_32", x))
	leading := b.Call("leading", "Slice", shape, b.Integers("first", 0), b.Integers("last", -1))
	y = b.Shaped("shaped", y, b.Concat("Y_shape", leading, b.IntAttribute("n")))
	return []*onnx.Value{b.Round("Y", y, LinearX)}
}

// Product multiplies the rows of x, in float32, by the weights of b's inputs and adds the bias.
func Product(b *op.Body, s op.Site, x *onnx.Value) *onnx.Value {
	w := LinearWeights(b, s)
	var y *onnx.Value
	switch kind := op.Read[Linear](s.Attributes).Activations; kind {
	case ActivationsFloat, ActivationsFP8:
		if kind == ActivationsFP8 {
			x = roundedFloats(b, x)
		}
		y = b.Call("product", "MatMul", x, w.transposed("W", w.values(), w.IntAttribute("k")))
	default:
		center := b.Number("centre", w.center())
		main := b.Call("product", "MatMul", quantizedBlocks(b, x, s),
			w.transposed("centred", w.scaled("centred_blocks", center), w.IntAttribute("k")))
		y = b.Call("sum", "Add", main, b.Call("correction", "MatMul", w.sums(x),
			w.transposed("offset", w.offset(center), w.blocks())))
	}
	if s.Has(LinearBias) {
		y = b.Call("biased", "Add", y, b.Float32("bias_32", b.In[LinearBias]))
	}
	return y
}

// quantizedBlocks rounds each block of x to integers times a factor of the block.
func quantizedBlocks(b *op.Body, x *onnx.Value, s op.Site) *onnx.Value {
	most := float32(127)
	if op.Read[Linear](s.Attributes).Activations == ActivationsInt16 {
		most = 32767
	}
	return roundedBlocks(b, x, CodeBlock, most, func(x *onnx.Value) *onnx.Value {
		return b.Call("integers", "Round", x)
	})
}

// roundedFloats rounds each block of 128 of x to 8-bit floats with a factor for the block.
func roundedFloats(b *op.Body, x *onnx.Value) *onnx.Value {
	return roundedBlocks(b, x, floatBlock, 448, func(x *onnx.Value) *onnx.Value {
		// Casts to 8-bit floats came with opset 19. The step between floats follows from the power of two that |x|
		// reaches, at least 2^-6.
		size, step := b.Call("size", "Abs", x), b.Number("step_1", 0x1p-9)
		for _, by := range []float32{256, 16, 4, 2} {
			name := fmt.Sprintf("step_%g", by)
			more := b.Call(name+"_more", "Mul", step, b.Number(name+"_by", by))
			reach := b.Call(name+"_reach", "Mul", more, b.Number("eight", 8))
			step = b.Call(name, "Where", b.Call(name+"_below", "Less", size, reach), step, more)
		}
		return b.Call("floats", "Mul", b.Call("units", "Round", b.Call("in_units", "Div", x, step)), step)
	})
}

// roundedBlocks rounds x in blocks of block columns, after scaling the greatest magnitude of each block to most.
func roundedBlocks(b *op.Body, x *onnx.Value, block int64, most float32,
	round func(x *onnx.Value) *onnx.Value) *onnx.Value {
	limit, none := b.Number("most", most), b.Number("none", 0)
	blocks := b.Call("X_blocks", "Reshape", x, b.Integers("block_shape", -1, block))
	greatest := b.Greatest("greatest", b.Call("magnitudes", "Abs", blocks))
	factor := b.Call("factor", "Where", b.Call("is_zero", "Less", greatest, b.Number("tiny", 0x1p-100)), none,
		b.Call("inverse", "Div", limit, greatest))
	rounded := round(b.Call("scaled_X", "Mul", blocks, factor))
	dequantized := b.Call("quantised", "Mul", rounded, b.Call("step", "Div", greatest, limit))
	return b.Call("quantised_rows", "Reshape", dequantized,
		b.Concat("X_matrix", b.Integers("any", -1), b.IntAttribute("k")))
}
