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

	activationsFloat = "float"
	activationsInt16 = "int16"
	activationsInt8  = "int8"
)

// The inputs of Linear, in order.
const (
	LinearX = iota
	LinearCodes
	LinearScale
	LinearMinus
	LinearSuperScale
	LinearSuperMinus
	LinearBias
)

const (
	panelRows  = 16  // rows of the weights that lie side by side
	codeBlock  = 32  // columns whose codes lie side by side, and whose activations share a factor
	superBlock = 256 // columns that share the second factor of two-level scales
)

// codedParams are the inputs that hold the weights.
var codedParams = []Param{
	{Name: "codes", Type: "uint8",
		Doc: "[P, k/32, 4, 64], with code=int8 [P, k/32, 8, 64]; P = ceil(n/16) panels of 16 rows"},
	{Name: "scale", Type: "S",
		Doc: "[P, k/block, 16]: float32 or float16; int8 with super_scale; uint8 with code=e2m1"},
	{Name: "minus", Type: "S", Optional: true, Doc: "the shape of scale"},
	{Name: "super_scale", Type: "float16", Optional: true, Doc: "[P, k/256, 16]"},
	{Name: "super_minus", Type: "float16", Optional: true, Doc: "[P, k/256, 16]: given if minus and super_scale are"},
}

// codedAttributes say how the weights are to be read.
var codedAttributes = []AttributeSpec{
	{Name: "code", Type: onnx.AttrString, Values: []string{codeInt4, codeInt8, codeE2M1},
		Doc: "what a code is: 4 or 8 bits without a sign, or 4 bits of floating point"},
	{Name: "zero", Type: onnx.AttrInt, Grid: []any{0, 8, 112, 128},
		Doc: "the code that stands for 0 where there is no minus; 0 with code=e2m1"},
	{Name: "block", Type: onnx.AttrInt, Grid: []any{16, 32}, Doc: "columns that share a scale: 16 or 32"},
	{Name: "n", Type: onnx.AttrInt, Grid: []any{5, 37}, Doc: "rows of W"},
	{Name: "k", Type: onnx.AttrInt, Grid: []any{96, 256, 512},
		Doc: "columns of W: a multiple of 32, with super_scale of 256"},
}

var linearFamily = &Family{Name: "linear", Summary: "products with weights that stay quantised",
	Stored: true}

// linear is a product with weights that are kept as they were quantised.
var linear = &Op{
	Name: "Linear",
	Summary: "A product with weights in blocks of 4 or 8 bits, which are read as they lie; what becomes of the " +
		"activations is part of it.",
	Formula: []string{
		"row r of panel p is row 16p + r of W, n of them in all; the code of its column 32b + c, with j and i " +
			"such that",
		"  int4, e2m1: c = 4j + i: low, c = 16 + 4j + i: high half of codes[p, b, j, 4r + i]",
		"  int8:       c = 4j + i: codes[p, b, j, 4r + i]",
		"its d and m are those of column 32b + c: scale[p, (32b + c) / block, r] and so on, s and t the same " +
			"of super_*;",
		"all in float32",
		"  d = scale; super_scale is given: d = s * scale; code=e2m1: d = 2^(scale - 127), NaN for 255",
		"  m = minus; super_minus is given: m = t * minus; minus is left out: m = 0",
		"  int4, int8: W = d * (code - zero) + m",
		"  e2m1: W = d * v, v of a code from 0 on 0, 0.5, 1, 1.5, 2, 3, 4, 6, and from 8 on the same less than 0",
		"activations=float: Y = round_T(X . W^T + bias)",
		"activations=int8, int16: L = 127, 32767; z = 8 for int4, 128 for int8, 0 for e2m1; for 32 columns of a row " +
			"of X:",
		"  a = max of |x|;  x' = a < 2^-100 ? 0 : round(x * (L / a)) * (a / L), to the nearest, halves to even",
		"  Y = round_T(sum over columns of d * (code - z) * x' + sum over blocks of (m + d * (z - zero)) * " +
			"(sum of x) + bias)",
	},
	Source: "the block formats of GGUF (q4_0 to q6_K) and of OCP Microscaling Formats (2023, MXFP4); int8 " +
		"activations as in llama.cpp, with sums of the activations themselves",
	Family:  linearFamily,
	Devices: []Device{CPU},
	Inputs: append(append([]Param{{Name: "X", Type: "T", Doc: "[..., k]"}}, codedParams...),
		Param{Name: "bias", Type: "T", Optional: true, Doc: "[n]"}),
	Outputs: []Param{{Name: "Y", Type: "T", Doc: "[..., n]"}},
	Attributes: append(codedAttributes[:len(codedAttributes):len(codedAttributes)],
		AttributeSpec{Name: "activations", Type: onnx.AttrString,
			Values: []string{activationsFloat, activationsInt16, activationsInt8},
			Doc: "what X is rounded to before it is multiplied: int8 loses what can be seen, int16 next to " +
				"nothing"}),
	Types:    linearTypes(),
	check:    linearSupports,
	shapes:   linearShapes,
	examples: linearExamples,
	overload: func(s Site) string {
		return linearWeights(nil, s).overload() + "_" + s.Attr("activations").String + named(s, LinearBias, "_bias")
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

// scaleTypes are c with each type of scales.
func scaleTypes(c Combination) []Combination {
	var list []Combination
	for _, t := range []onnx.DataType{f32, f16, onnx.Int8, onnx.Uint8} {
		list = append(list, c.with("S", t))
	}
	return list
}

func linearShapes(s Site, equal func(a, b int64) int64) [][]int64 {
	x := s.dims(LinearX)
	if len(x) > 0 {
		equal(x[len(x)-1], s.Attr("k").Int)
	}
	return [][]int64{withLast(x, s.Attr("n").Int)}
}

func linearSupports(s Site) error {
	w := linearWeights(nil, s)
	if err := w.check("Linear"); err != nil {
		return err
	}
	if x := s.dims(LinearX); x != nil && (len(x) == 0 || !agree(x[len(x)-1:], []int64{w.k})) {
		return fmt.Errorf("mojo.Linear takes X of shape [..., %d], k being %d, not %v", w.k, w.k, x)
	}
	if d := s.dims(LinearBias); d != nil && !agree(d, []int64{w.n}) {
		return fmt.Errorf("mojo.Linear takes a bias of shape [%d], n being %d, not %v", w.n, w.n, d)
	}
	return nil
}

// linearBody is the definition.
func linearBody(b *body, s Site) []*onnx.Value {
	x, shape := b.rows("X_rows", b.in[LinearX])
	y := b.linear(s, b.float32("X_32", x))
	leading := b.call("leading", "Slice", shape, b.integers("first", 0), b.integers("last", -1))
	y = b.call("shaped", "Reshape", y, b.concat("Y_shape", leading, b.intAttribute("n")))
	return []*onnx.Value{b.round("Y", y, LinearX)}
}

// linear is the product of the rows of x, which are float32, with the weights of b's inputs, plus the bias.
func (b *body) linear(s Site, x *onnx.Value) *onnx.Value {
	w := linearWeights(b, s)
	var y *onnx.Value
	if s.Attr("activations").String == activationsFloat {
		y = b.call("product", "MatMul", x, w.transposed("W", w.values(), w.intAttribute("k")))
	} else {
		centre := b.number("centre", w.centre())
		main := b.call("product", "MatMul", b.quantised(x, s),
			w.transposed("centred", w.scaled("centred_blocks", centre), w.intAttribute("k")))
		y = b.call("sum", "Add", main, b.call("correction", "MatMul", w.sums(x),
			w.transposed("offset", w.offset(centre), w.blocks())))
	}
	if s.has(LinearBias) {
		y = b.call("biased", "Add", y, b.float32("bias_32", b.in[LinearBias]))
	}
	return y
}

// quantised is a matrix of whole blocks, each rounded to integers of its own factor.
func (b *body) quantised(x *onnx.Value, s Site) *onnx.Value {
	most := float32(127)
	if s.Attr("activations").String == activationsInt16 {
		most = 32767
	}
	limit, none := b.number("most", most), b.number("none", 0)
	blocks := b.call("X_blocks", "Reshape", x, b.integers("block_shape", -1, codeBlock))
	greatest := b.greatest("greatest", b.call("magnitudes", "Abs", blocks))
	factor := b.call("factor", "Where", b.call("is_zero", "Less", greatest, b.number("tiny", 0x1p-100)), none,
		b.call("inverse", "Div", limit, greatest))
	rounded := b.call("integers", "Round", b.call("scaled_X", "Mul", blocks, factor))
	quantised := b.call("quantised", "Mul", rounded, b.call("step", "Div", greatest, limit))
	return b.call("quantised_rows", "Reshape", quantised,
		b.concat("X_matrix", b.integers("any", -1), b.intAttribute("k")))
}

// greatest is the maximum over the last axis, which stays.
func (b *body) greatest(name string, v *onnx.Value) *onnx.Value {
	keep := onnx.IntAttr("keepdims", 1)
	if b.site.Opset < reduceAxesOpset {
		return b.op(name, "ReduceMax", []*onnx.Value{v}, onnx.IntsAttr("axes", []int64{-1}), keep)
	}
	return b.op(name, "ReduceMax", []*onnx.Value{v, b.integers("axes", -1)}, keep)
}

// named is word for a site that has the input.
func named(s Site, input int, word string) string {
	if s.has(input) {
		return word
	}
	return ""
}
