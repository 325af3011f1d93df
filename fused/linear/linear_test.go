package linear

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// quantizedAttrs are the attributes of a table of n rows of k.
func quantizedAttrs(code string, zero, block, n, k int64) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.StringAttr("code", code), onnx.IntAttr("zero", zero), onnx.IntAttr("block", block),
		onnx.IntAttr("n", n), onnx.IntAttr("k", k)}
}

func TestLinearSupports(t *testing.T) {
	const i8, u8, none = onnx.Int8, onnx.Uint8, onnx.Undefined
	attrs := func(code string, zero, block, n, k int64) []*onnx.Attribute {
		return append(quantizedAttrs(code, zero, block, n, k), onnx.StringAttr("activations", ActivationsInt16))
	}
	types := func(ts ...onnx.DataType) []onnx.DataType { return ts }
	x, codes, scale := []int64{2, 64}, []int64{2, 2, 4, 64}, []int64{2, 2, 16}
	int4 := attrs(codeInt4, 8, 32, 20, 64)
	twofold := attrs(codeInt4, 0, 32, 20, 512)
	float := onnx.StringAttr("activations", ActivationsFloat)
	e4m3 := append(quantizedAttrs(CodeE4M3, 0, 128, 20, 256), float)
	optest.RunSupports(t, []optest.SupportsCase{
		{"plain", Op, int4, types(op.F16, u8, op.F32), [][]int64{x, codes, scale}, ""},
		{"unknown shapes", Op, int4, types(op.BF16, u8, op.F16), nil, ""},
		{"minus and bias", Op, int4, types(op.F32, u8, op.F16, op.F16, none, none, op.F32),
			[][]int64{x, codes, scale, scale, nil, nil, {20}}, ""},
		{"two levels", Op, twofold, types(op.F32, u8, i8, i8, op.F16, op.F16),
			[][]int64{nil, nil, {2, 16, 16}, {2, 16, 16}, {2, 2, 16}, {2, 2, 16}}, ""},
		{"two levels of another size", Op, twofold, types(op.F32, u8, i8, i8, op.F16, op.F16),
			[][]int64{nil, nil, nil, nil, {2, 4, 16}}, "super_scale of shape [P, k/256, 16], here [2, 2, 16]"},
		{"one level for minus", Op, twofold, types(op.F32, u8, i8, i8, op.F16), nil, "super_minus if and only if"},
		{"a second level of nothing", Op, twofold, types(op.F32, u8, i8, none, op.F16, op.F16), nil,
			"super_minus if and"},
		{"wide scales of two levels", Op, twofold, types(op.F32, u8, op.F16, none, op.F16), nil, "scale of int8"},
		{"integer scales alone", Op, int4, types(op.F32, u8, i8), nil, "scale of float32 or float16"},
		{"super blocks that do not divide", Op, attrs(codeInt4, 0, 32, 20, 288), types(op.F32, u8, i8, none, op.F16),
			nil,
			"k is 288; it must be a multiple of 256"},
		{"blocks that do not divide", Op, attrs(codeInt4, 0, 32, 20, 80), types(op.F32, u8, op.F16), nil,
			"k is 80; it must be a multiple of 32"},
		{"other blocks", Op, attrs(codeInt4, 0, 64, 20, 64), types(op.F32, u8, op.F16), nil, "block is 64"},
		{"zero beyond the codes", Op, attrs(codeInt4, 16, 32, 20, 64), types(op.F32, u8, op.F16), nil, "from 0 to 15"},
		{"exponents", Op, attrs(codeE2M1, 0, 32, 20, 64), types(op.F32, u8, u8), [][]int64{x, codes, scale}, ""},
		{"exponents for integers", Op, int4, types(op.F32, u8, u8), nil, "scale of float32 or float16"},
		{"e2m1 with a minus", Op, attrs(codeE2M1, 0, 32, 20, 64), types(op.F32, u8, u8, u8), nil, "neither minus"},
		{"floats of 8 bits", Op, e4m3, types(op.F16, u8, op.F32), [][]int64{{256}, {2, 8, 8, 64}, {2, 2, 1}}, ""},
		{"e4m3 with half scales", Op, e4m3, types(op.F32, u8, op.F16), nil, "scale of float32 with code e4m3"},
		{"e4m3 with a scale a row", Op, e4m3, types(op.F32, u8, op.F32), [][]int64{nil, nil, {2, 2, 16}},
			"scale of shape [P, k/block, 1], here [2, 2, 1]"},
		{"e4m3 of odd rows", Op, append(quantizedAttrs(CodeE4M3, 0, 128, 20, 96), float), types(op.F32, u8, op.F32),
			nil,
			"k is 96; it must be a multiple of 128"},
		{"e4m3 in small blocks", Op, append(quantizedAttrs(CodeE4M3, 0, 32, 20, 256), float), types(op.F32, u8, op.F32),
			nil, "block is 32"},
		{"e4m3 with integers", Op, attrs(CodeE4M3, 0, 128, 20, 256), types(op.F32, u8, op.F32), nil,
			`activations is "int16"; it must be float or fp8 with code "e4m3"`},
		{"fp8 with integers", Op,
			append(quantizedAttrs(codeInt4, 8, 32, 20, 64), onnx.StringAttr("activations", ActivationsFP8)),
			types(op.F32, u8, op.F32), nil, `activations is "fp8"; it must be float, int16 or int8 with`},
		{"codes by rows", Op, int4, types(op.F32, u8, op.F16), [][]int64{x, {20, 32}},
			"codes of shape [P, k/32, 4, 64], here [2, 2, 4, 64]"},
		{"codes of 4 bits as 8", Op, attrs(codeInt8, 128, 32, 20, 64), types(op.F32, u8, op.F16), [][]int64{x, codes},
			"codes of shape [P, k/32, 8, 64], here [2, 2, 8, 64]"},
		{"narrow X", Op, int4, types(op.F32, u8, op.F16), [][]int64{{2, 32}}, "X of shape [A..., k], here [A..., 64]"},
		{"bias of the panels", Op, int4, types(op.F32, u8, op.F16, none, none, none, op.F32),
			[][]int64{nil, nil, nil, nil, nil, nil, {32}}, "bias of shape [n], here [20]"},
		{"bias of another type", Op, int4, types(op.F32, u8, op.F16, none, none, none, op.F16), nil, "one type"},
		{"embedding", embedding, quantizedAttrs(codeInt8, 128, 32, 20, 64), types(onnx.Int64, u8, op.F16),
			[][]int64{{3}, {2, 2, 8, 64}, scale}, ""},
		{"embedding of narrow ids", embedding, quantizedAttrs(codeInt8, 128, 32, 20, 64), types(onnx.Int32, u8, op.F16),
			nil, "ids of int64"},
	})
}

// TestLinearLoss compares the definition with a plain product: float is that product, int16 loses next to nothing, and
// int8 as much as the width of its steps.
func TestLinearLoss(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 11))
	bounds := map[string]float64{ActivationsFloat: 1e-6, ActivationsInt16: 1e-4, ActivationsInt8: 3e-2,
		ActivationsFP8: 0.1}
	for _, opset := range []int64{13, 18} { // where bodies differ
		for _, c := range Op.Types[:4] { // float32 activations
			for _, s := range Op.Examples(c, opset) {
				in := optest.RandomInputs(r, s)
				got, err := optest.Evaluate(Op, s, in)
				if err != nil {
					t.Fatalf("%s at opset %d: %v", Op.Overload(s), opset, err)
				}
				kind := s.Attr("activations").String
				want := plainProduct(s, in)
				if len(got[0].F) != len(want) {
					t.Fatalf("%s gives %d elements, want %d", Op.Overload(s), len(got[0].F), len(want))
				}
				most, worst := 0.0, 0.0
				for i, x := range want {
					most, worst = max(most, math.Abs(x)), max(worst, math.Abs(x-got[0].F[i]))
				}
				if worst > bounds[kind]*most || bounds[kind] > 1e-2 && len(want) > 0 && worst < 1e-5*most {
					t.Errorf("%s at opset %d: differs by %g of %g", Op.Overload(s), opset, worst, most)
				}
			}
		}
	}
}

// plainProduct is X times the weights, in float64.
func plainProduct(s op.Site, in []*reference.Tensor) []float64 {
	var y []float64
	n, k := int(s.Attr("n").Int), int(s.Attr("k").Int)
	for row := range len(in[LinearX].F) / k {
		for column := range n {
			sum := 0.0
			if s.Has(LinearBias) {
				sum = in[LinearBias].F[column]
			}
			for i, x := range in[LinearX].F[row*k : (row+1)*k] {
				sum += x * optest.WeightAt(s, in, column, i)
			}
			y = append(y, sum)
		}
	}
	return y
}

// TestEmbeddingRows checks that an Embedding returns the rows that a Linear multiplies by.
func TestEmbeddingRows(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 12))
	for _, c := range embedding.Types {
		for _, s := range embedding.Examples(c, 18) {
			in := optest.RandomInputs(r, s)
			got, err := optest.Evaluate(embedding, s, in)
			if err != nil {
				t.Fatal(err)
			}
			want := append(slices.Clone(s.Dims[0]), s.Attr("k").Int)
			shape := embedding.OutputShapes(s, func(a, _ int64) int64 { return a })[0]
			if !slices.Equal(shape, want) {
				t.Errorf("the shape is inferred as %v, want %v", shape, want)
			}
			k := int(s.Attr("k").Int)
			for i, y := range got[0].F {
				if want := optest.WeightAt(s, in, int(in[0].I[i/k]), i%k); math.Abs(y-want) > 1e-6*math.Abs(want) {
					t.Fatalf("%s: column %d of row %d is %v, want %v", embedding.Overload(s), i%k, in[0].I[i/k], y,
						want)
				}
			}
		}
	}
}

// TestNoTokens has no token of two batches: the definition must keep the size of both dimensions.
func TestNoTokens(t *testing.T) {
	s := op.Site{Attributes: append(quantizedAttrs(codeInt4, 8, 32, 20, 64),
		onnx.StringAttr("activations", ActivationsFloat)), Types: []onnx.DataType{op.F32, onnx.Uint8, op.F32},
		Dims: [][]int64{{2, 0, 64}, {2, 2, 4, 64}, {2, 2, 16}}, Opset: 18}
	out, err := optest.Evaluate(Op, s, optest.RandomInputs(rand.New(rand.NewPCG(1, 2)), s))
	if err != nil || !slices.Equal(out[0].Shape, []int{2, 0, 20}) {
		t.Errorf("got %v, %v", out, err)
	}
}
