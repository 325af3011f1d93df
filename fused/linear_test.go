package fused

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

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
		return append(quantizedAttrs(code, zero, block, n, k), onnx.StringAttr("activations", activationsInt16))
	}
	types := func(ts ...onnx.DataType) []onnx.DataType { return ts }
	x, codes, scale := []int64{2, 64}, []int64{2, 2, 4, 64}, []int64{2, 2, 16}
	int4 := attrs(codeInt4, 8, 32, 20, 64)
	twofold := attrs(codeInt4, 0, 32, 20, 512)
	float := onnx.StringAttr("activations", activationsFloat)
	e4m3 := append(quantizedAttrs(codeE4M3, 0, 128, 20, 256), float)
	for _, test := range []supportsCase{
		{"plain", linear, int4, types(f16, u8, f32), [][]int64{x, codes, scale}, ""},
		{"unknown shapes", linear, int4, types(bf16, u8, f16), nil, ""},
		{"minus and bias", linear, int4, types(f32, u8, f16, f16, none, none, f32),
			[][]int64{x, codes, scale, scale, nil, nil, {20}}, ""},
		{"two levels", linear, twofold, types(f32, u8, i8, i8, f16, f16),
			[][]int64{nil, nil, {2, 16, 16}, {2, 16, 16}, {2, 2, 16}, {2, 2, 16}}, ""},
		{"two levels of another size", linear, twofold, types(f32, u8, i8, i8, f16, f16),
			[][]int64{nil, nil, nil, nil, {2, 4, 16}}, "super_scale of shape [P, k/256, 16], here [2, 2, 16]"},
		{"one level for minus", linear, twofold, types(f32, u8, i8, i8, f16), nil, "super_minus if and only if"},
		{"a second level of nothing", linear, twofold, types(f32, u8, i8, none, f16, f16), nil, "super_minus if and"},
		{"wide scales of two levels", linear, twofold, types(f32, u8, f16, none, f16), nil, "scale of int8"},
		{"integer scales alone", linear, int4, types(f32, u8, i8), nil, "scale of float32 or float16"},
		{"super blocks that do not divide", linear, attrs(codeInt4, 0, 32, 20, 288), types(f32, u8, i8, none, f16), nil,
			"k is 288; it must be a multiple of 256"},
		{"blocks that do not divide", linear, attrs(codeInt4, 0, 32, 20, 80), types(f32, u8, f16), nil,
			"k is 80; it must be a multiple of 32"},
		{"other blocks", linear, attrs(codeInt4, 0, 64, 20, 64), types(f32, u8, f16), nil, "block is 64"},
		{"zero beyond the codes", linear, attrs(codeInt4, 16, 32, 20, 64), types(f32, u8, f16), nil, "from 0 to 15"},
		{"exponents", linear, attrs(codeE2M1, 0, 32, 20, 64), types(f32, u8, u8), [][]int64{x, codes, scale}, ""},
		{"exponents for integers", linear, int4, types(f32, u8, u8), nil, "scale of float32 or float16"},
		{"e2m1 with a minus", linear, attrs(codeE2M1, 0, 32, 20, 64), types(f32, u8, u8, u8), nil, "neither minus"},
		{"floats of 8 bits", linear, e4m3, types(f16, u8, f32), [][]int64{{256}, {2, 8, 8, 64}, {2, 2, 1}}, ""},
		{"e4m3 with half scales", linear, e4m3, types(f32, u8, f16), nil, "scale of float32 with code e4m3"},
		{"e4m3 with a scale a row", linear, e4m3, types(f32, u8, f32), [][]int64{nil, nil, {2, 2, 16}},
			"scale of shape [P, k/block, 1], here [2, 2, 1]"},
		{"e4m3 of odd rows", linear, append(quantizedAttrs(codeE4M3, 0, 128, 20, 96), float), types(f32, u8, f32), nil,
			"k is 96; it must be a multiple of 128"},
		{"e4m3 in small blocks", linear, append(quantizedAttrs(codeE4M3, 0, 32, 20, 256), float), types(f32, u8, f32),
			nil, "block is 32"},
		{"e4m3 with integers", linear, attrs(codeE4M3, 0, 128, 20, 256), types(f32, u8, f32), nil,
			`activations is "int16"; it must be float or fp8 with code "e4m3"`},
		{"fp8 with integers", linear,
			append(quantizedAttrs(codeInt4, 8, 32, 20, 64), onnx.StringAttr("activations", activationsFP8)),
			types(f32, u8, f32), nil, `activations is "fp8"; it must be float, int16 or int8 with`},
		{"codes by rows", linear, int4, types(f32, u8, f16), [][]int64{x, {20, 32}},
			"codes of shape [P, k/32, 4, 64], here [2, 2, 4, 64]"},
		{"codes of 4 bits as 8", linear, attrs(codeInt8, 128, 32, 20, 64), types(f32, u8, f16), [][]int64{x, codes},
			"codes of shape [P, k/32, 8, 64], here [2, 2, 8, 64]"},
		{"narrow X", linear, int4, types(f32, u8, f16), [][]int64{{2, 32}}, "X of shape [A..., k], here [A..., 64]"},
		{"bias of the panels", linear, int4, types(f32, u8, f16, none, none, none, f32),
			[][]int64{nil, nil, nil, nil, nil, nil, {32}}, "bias of shape [n], here [20]"},
		{"bias of another type", linear, int4, types(f32, u8, f16, none, none, none, f16), nil, "one type"},
		{"embedding", embedding, quantizedAttrs(codeInt8, 128, 32, 20, 64), types(onnx.Int64, u8, f16),
			[][]int64{{3}, {2, 2, 8, 64}, scale}, ""},
		{"embedding of narrow ids", embedding, quantizedAttrs(codeInt8, 128, 32, 20, 64), types(onnx.Int32, u8, f16),
			nil, "ids of int64"},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t) })
	}
}

// TestLinearLoss compares the definition with a plain product: float is that product, int16 loses next to nothing, and
// int8 as much as the width of its steps.
func TestLinearLoss(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 11))
	bounds := map[string]float64{activationsFloat: 1e-6, activationsInt16: 1e-4, activationsInt8: 3e-2,
		activationsFP8: 0.1}
	for _, opset := range []int64{13, 18} { // where bodies differ
		for _, c := range linear.Types[:4] { // float32 activations
			for _, s := range linear.Examples(c, opset) {
				in := randomInputs(r, s)
				got, err := evaluate(linear, s, in)
				if err != nil {
					t.Fatalf("%s at opset %d: %v", linear.Overload(s), opset, err)
				}
				kind := s.Attr("activations").String
				want := plainProduct(s, in)
				if len(got[0].F) != len(want) {
					t.Fatalf("%s gives %d elements, want %d", linear.Overload(s), len(got[0].F), len(want))
				}
				most, worst := 0.0, 0.0
				for i, x := range want {
					most, worst = max(most, math.Abs(x)), max(worst, math.Abs(x-got[0].F[i]))
				}
				if worst > bounds[kind]*most || bounds[kind] > 1e-2 && len(want) > 0 && worst < 1e-5*most {
					t.Errorf("%s at opset %d: differs by %g of %g", linear.Overload(s), opset, worst, most)
				}
			}
		}
	}
}

// plainProduct is X times the weights, in float64.
func plainProduct(s Site, in []*reference.Tensor) []float64 {
	var y []float64
	n, k := int(s.Attr("n").Int), int(s.Attr("k").Int)
	for row := range len(in[LinearX].F) / k {
		for column := range n {
			sum := 0.0
			if s.has(LinearBias) {
				sum = in[LinearBias].F[column]
			}
			for i, x := range in[LinearX].F[row*k : (row+1)*k] {
				sum += x * weightAt(s, in, column, i)
			}
			y = append(y, sum)
		}
	}
	return y
}

// weightAt is one element of W.
func weightAt(s Site, in []*reference.Tensor, row, column int) float64 {
	panel, r, place, k := row/16, row%16, column%32, int(s.Attr("k").Int)
	block := (panel*(k/32) + column/32)
	of := func(input, width int) float64 {
		at := (panel*(k/width)+column/width)*16 + r
		if s.Attr("code").String == codeE4M3 {
			at /= 16
		}
		if in[input].F != nil {
			return in[input].F[at]
		}
		return float64(in[input].I[at])
	}
	width := int(s.Attr("block").Int)
	scale, minus := of(LinearScale, width), 0.0
	if s.has(LinearMinus) {
		minus = of(LinearMinus, width)
	}
	if s.has(LinearSuperScale) {
		scale *= of(LinearSuperScale, 256)
	}
	if s.has(LinearSuperMinus) {
		minus *= of(LinearSuperMinus, 256)
	}
	codes := in[LinearCodes].I
	if s.Attr("code").String == codeE4M3 {
		code := codes[(block*8+place/4)*64+4*r+place%4]
		value := math.Ldexp(float64(code&7+8), int(code>>3&15)-10)
		if code>>3&15 == 0 {
			value = math.Ldexp(float64(code&7), -9)
		}
		return scale * math.Copysign(value, 127.5-float64(code))
	}
	if s.Attr("code").String == codeInt8 {
		code := codes[(block*8+place/4)*64+4*r+place%4]
		return scale*float64(code-s.Attr("zero").Int) + minus
	}
	code := codes[(block*4+place%16/4)*64+4*r+place%4]
	if place >= 16 {
		code >>= 4
	}
	if code &= 15; s.Attr("code").String == codeInt4 {
		return scale*float64(code-s.Attr("zero").Int) + minus
	}
	value := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code%8]
	return math.Ldexp(math.Copysign(value, 7.5-float64(code)), int(scale)-127)
}

// TestEmbeddingRows checks that an Embedding returns the rows that a Linear multiplies by.
func TestEmbeddingRows(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 12))
	for _, c := range embedding.Types {
		for _, s := range embedding.Examples(c, 18) {
			in := randomInputs(r, s)
			got, err := evaluate(embedding, s, in)
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
				if want := weightAt(s, in, int(in[0].I[i/k]), i%k); math.Abs(y-want) > 1e-6*math.Abs(want) {
					t.Fatalf("%s: column %d of row %d is %v, want %v", embedding.Overload(s), i%k, in[0].I[i/k], y,
						want)
				}
			}
		}
	}
}

// TestPartial checks OnEvery, and that every value in Partial is a value of the attribute.
func TestPartial(t *testing.T) {
	for _, o := range Ops() {
		for _, p := range o.Partial {
			i := slices.IndexFunc(o.Attributes, func(a AttributeSpec) bool { return a.Name == p.Attribute })
			if i < 0 || !slices.Contains(o.Attributes[i].Values, p.Value) || !slices.Contains(o.Devices, p.Device) {
				t.Errorf("%s has no %s=%s on %s", o.Name, p.Attribute, p.Value, p.Device)
				continue
			}
			s := Site{Attributes: []*onnx.Attribute{onnx.StringAttr(p.Attribute, p.Value)}}
			if o.OnEvery(p.Device, s) || !o.OnEvery(CPU, s) {
				t.Errorf("%s with %s=%s is on every %s", o.Name, p.Attribute, p.Value, p.Device)
			}
		}
	}
	if linear.OnEvery(CUDA, Site{Attributes: []*onnx.Attribute{onnx.StringAttr("code", codeE4M3)}}) {
		t.Error("Linear multiplies e4m3 on every GPU")
	}
}
