package fused

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The values of the string attributes of Linear and Embedding.
const (
	codeInt4 = "int4"
	codeInt8 = "int8"
	codeE2M1 = "e2m1"
	codeE4M3 = "e4m3"

	activationsFloat = "float"
	activationsInt16 = "int16"
	activationsInt8  = "int8"
	activationsFP8   = "fp8"
)

const (
	panelRows  = 16  // rows of the weights that are interleaved
	codeBlock  = 32  // columns whose codes are interleaved, and whose activations share a factor
	superBlock = 256 // columns that share the second factor of two-level scales
	floatBlock = 128 // columns that share a scale with code=e4m3, and a factor with activations=fp8
)

// The shapes of codes and scales for each value of code.
const (
	codesDims Shape = "code: P k/32 4 64 | P k/32 8 64 | P k/32 4 64 | P k/32 8 64"
	superDims Shape = "P k/256 16"
	scaleDims Shape = "code: P k/block 16 | P k/block 16 | P k/block 16 | P k/block 1"
)

// quantizedLet defines P: weights are stored in panels of 16 rows.
var quantizedLet = map[string]Shape{"P": "(n+15)/16"}

// quantizedParams are the inputs that hold the weights.
var quantizedParams = []Param{
	{Name: "codes", Type: "uint8", Dims: codesDims},
	{Name: "scale", Type: "S", Dims: scaleDims,
		Doc: "float32 or float16; int8 with super_scale; uint8 with code=e2m1; float32 with code=e4m3"},
	{Name: "minus", Type: "S", Optional: true, Dims: scaleDims},
	{Name: "super_scale", Type: "float16", Optional: true, Dims: superDims},
	{Name: "super_minus", Type: "float16", Optional: true, Dims: superDims,
		Doc: "given if minus and super_scale are"},
}

// quantizedAttributes describe how the weights are stored.
var quantizedAttributes = []AttributeSpec{
	{Name: "code", Type: onnx.AttrString, Values: []string{codeInt4, codeInt8, codeE2M1, codeE4M3},
		Doc: "type of a code: unsigned of 4 or 8 bits, or floating point of 4 or 8 bits"},
	{Name: "zero", Type: onnx.AttrInt, Bounds: Bounds{Least: 0, Most: 255}, Grid: []any{0, 8, 112, 128},
		Doc: "the code of 0 if minus is left out; 0 with code=e2m1 and e4m3"},
	{Name: "block", Type: onnx.AttrInt, Bounds: only(16, codeBlock, floatBlock), Grid: []any{16, 32, 128},
		Doc: "columns that share a scale: 16 or 32 with integer codes, 32 with e2m1, 128 with e4m3"},
	{Name: "n", Type: onnx.AttrInt, Bounds: size(1), Grid: []any{5, 37}, Doc: "rows of W"},
	{Name: "k", Type: onnx.AttrInt, Bounds: size(codeBlock), Grid: []any{96, 256, 512},
		Doc: "columns of W: a multiple of 32, of 256 with super_scale, of 128 with code=e4m3"},
}

// quantizedRules returns the rules of the attributes that describe how a matrix is stored. The names of zero, block and
// code begin with prefix; columns names the attribute with the number of columns.
func quantizedRules(prefix, columns string) []Rule {
	code := prefix + "code"
	return []Rule{
		{Attribute: prefix + "zero", Bounds: Bounds{Least: 0, Most: 15}, With: code, Is: []string{codeInt4}},
		{Attribute: prefix + "zero", Bounds: only(0), With: code, Is: []string{codeE2M1, codeE4M3}},
		{Attribute: prefix + "block", Bounds: only(16, codeBlock), With: code, Is: []string{codeInt4, codeInt8}},
		{Attribute: prefix + "block", Bounds: only(codeBlock), With: code, Is: []string{codeE2M1}},
		{Attribute: prefix + "block", Bounds: only(floatBlock), With: code, Is: []string{codeE4M3}},
		{Attribute: columns, Bounds: size(floatBlock), With: code, Is: []string{codeE4M3}},
	}
}

// activationRules returns the rules of activations that depend on the attribute named code.
func activationRules(code string) []Rule {
	return []Rule{
		{Attribute: "activations", Values: []string{activationsFloat, activationsFP8}, With: code,
			Is: []string{codeE4M3}},
		{Attribute: "activations", Values: []string{activationsFloat, activationsInt16, activationsInt8}, With: code,
			Is: []string{codeE4M3}, Not: true},
	}
}

var linearFamily = &Family{Name: "linear", Summary: "products with weights that stay quantized",
	Stored: true}

// linear is a product with weights that stay quantized.
var linear = &Op{
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
	Devices: []Device{CPU, CUDA},
	Partial: []Partial{{CUDA, "code", codeE4M3}}, // Hopper's tensor cores multiply it
	Inputs: append(append([]Param{{Name: "X", Type: "T", Dims: "A... k"}}, quantizedParams...),
		Param{Name: "bias", Type: "T", Optional: true, Dims: "n"}),
	Outputs: []Param{{Name: "Y", Type: "T", Dims: "A... n"}},
	Attributes: append(within("weights", "Embedding", quantizedAttributes),
		AttributeSpec{Name: "activations", Type: onnx.AttrString,
			Values: []string{activationsFloat, activationsInt16, activationsInt8, activationsFP8},
			Doc: "type that X is rounded to before the product: int8 loses visibly, int16 next to nothing; " +
				"code=e4m3 takes float or fp8, and only it takes fp8"}),
	Rules:    append(quantizedRules("", "k"), activationRules("code")...),
	Types:    linearTypes(),
	Let:      quantizedLet,
	check:    func(s Site) error { return linearWeights(nil, s).check("Linear") },
	examples: linearExamples,
	overload: func(s Site) string {
		kind := Read[Linear](s.Attributes).Activations
		return linearWeights(nil, s).overload() + "_" + kind + named(s, LinearBias, "_bias")
	},
	define: linearBody,
}

func linearTypes() []Combination {
	var list []Combination
	for _, c := range independent("T") {
		list = append(list, scaleTypes(c)...)
	}
	return list
}

// scaleTypes returns c with each type of scales.
func scaleTypes(c Combination) []Combination {
	var list []Combination
	for _, t := range []onnx.DataType{f32, f16, onnx.Int8, onnx.Uint8} {
		list = append(list, c.with("S", t))
	}
	return list
}

func linearBody(b *body, s Site) []*onnx.Value {
	x, shape := b.rows("X_rows", b.in[LinearX])
	y := b.linear(s, b.float32("X_32", x))
	leading := b.call("leading", "Slice", shape, b.integers("first", 0), b.integers("last", -1))
	y = b.call("shaped", "Reshape", y, b.concat("Y_shape", leading, b.intAttribute("n")))
	return []*onnx.Value{b.round("Y", y, LinearX)}
}

// linear multiplies the rows of x, in float32, by the weights of b's inputs and adds the bias.
func (b *body) linear(s Site, x *onnx.Value) *onnx.Value {
	w := linearWeights(b, s)
	var y *onnx.Value
	switch kind := Read[Linear](s.Attributes).Activations; kind {
	case activationsFloat, activationsFP8:
		if kind == activationsFP8 {
			x = b.rounded8(x)
		}
		y = b.call("product", "MatMul", x, w.transposed("W", w.values(), w.intAttribute("k")))
	default:
		center := b.number("centre", w.center())
		main := b.call("product", "MatMul", b.quantized(x, s),
			w.transposed("centred", w.scaled("centred_blocks", center), w.intAttribute("k")))
		y = b.call("sum", "Add", main, b.call("correction", "MatMul", w.sums(x),
			w.transposed("offset", w.offset(center), w.blocks())))
	}
	if s.has(LinearBias) {
		y = b.call("biased", "Add", y, b.float32("bias_32", b.in[LinearBias]))
	}
	return y
}

// quantized rounds each block of x to integers times a factor of the block.
func (b *body) quantized(x *onnx.Value, s Site) *onnx.Value {
	most := float32(127)
	if Read[Linear](s.Attributes).Activations == activationsInt16 {
		most = 32767
	}
	return b.roundedBlocks(x, codeBlock, most, func(x *onnx.Value) *onnx.Value {
		return b.call("integers", "Round", x)
	})
}

// rounded8 rounds each block of 128 of x to 8-bit floats with a factor for the block.
func (b *body) rounded8(x *onnx.Value) *onnx.Value {
	return b.roundedBlocks(x, floatBlock, 448, func(x *onnx.Value) *onnx.Value {
		// Casts to 8-bit floats came with opset 19. The step between floats follows from the power of two that |x|
		// reaches, at least 2^-6.
		size, step := b.call("size", "Abs", x), b.number("step_1", 0x1p-9)
		for _, by := range []float32{256, 16, 4, 2} {
			name := fmt.Sprintf("step_%g", by)
			more := b.call(name+"_more", "Mul", step, b.number(name+"_by", by))
			reach := b.call(name+"_reach", "Mul", more, b.number("eight", 8))
			step = b.call(name, "Where", b.call(name+"_below", "Less", size, reach), step, more)
		}
		return b.call("floats", "Mul", b.call("units", "Round", b.call("in_units", "Div", x, step)), step)
	})
}

// roundedBlocks rounds x in blocks of block columns, after scaling the greatest magnitude of each block to most.
func (b *body) roundedBlocks(x *onnx.Value, block int64, most float32,
	round func(x *onnx.Value) *onnx.Value) *onnx.Value {
	limit, none := b.number("most", most), b.number("none", 0)
	blocks := b.call("X_blocks", "Reshape", x, b.integers("block_shape", -1, block))
	greatest := b.greatest("greatest", b.call("magnitudes", "Abs", blocks))
	factor := b.call("factor", "Where", b.call("is_zero", "Less", greatest, b.number("tiny", 0x1p-100)), none,
		b.call("inverse", "Div", limit, greatest))
	rounded := round(b.call("scaled_X", "Mul", blocks, factor))
	dequantized := b.call("quantised", "Mul", rounded, b.call("step", "Div", greatest, limit))
	return b.call("quantised_rows", "Reshape", dequantized,
		b.concat("X_matrix", b.integers("any", -1), b.intAttribute("k")))
}

// named returns word if the site has the input, or "".
func named(s Site, input int, word string) string {
	if s.has(input) {
		return word
	}
	return ""
}
