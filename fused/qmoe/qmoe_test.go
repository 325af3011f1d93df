package qmoe

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/fused/linear"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestQMoELoss compares the definition with MoE on the dequantized weights: float equals it, int16 loses next to
// nothing, and int8 as much as the width of its steps.
func TestQMoELoss(t *testing.T) {
	r := map[bool]*rand.Rand{false: rand.New(rand.NewPCG(5, 17)), true: rand.New(rand.NewPCG(5, 18))}
	bounds := map[string]float64{activationsFloat: 1e-6, activationsInt16: 1e-3, activationsInt8: 5e-2,
		activationsFP8: 0.1}
	for _, opset := range []int64{13, 18} { // where bodies differ
		for _, c := range Op.Types[:16] { // float32 activations
			for _, s := range Op.Examples(c, opset) {
				in := optest.RandomInputs(r[s.Attr("gate_up_code").String == linear.CodeE4M3], s)
				got, err := optest.Evaluate(Op, s, in)
				if err != nil {
					t.Fatalf("%s at opset %d: %v", Op.Overload(s), opset, err)
				}
				wide, floats := widened(s, in)
				want := optest.NaiveMoE(wide, floats)[0]
				if len(got[0].F) != len(want) {
					t.Fatalf("%s gives %d elements, want %d", Op.Overload(s), len(got[0].F), len(want))
				}
				kind := s.Attr("activations").String
				most, worst := 0.0, 0.0
				for i, x := range want {
					most, worst = max(most, math.Abs(x)), max(worst, math.Abs(x-got[0].F[i]))
				}
				if worst > bounds[kind]*most || bounds[kind] > 1e-2 && worst < 1e-5*most {
					t.Errorf("%s at opset %d: differs by %g of %g", Op.Overload(s), opset, worst, most)
				}
			}
		}
	}
}

// widened is the MoE of a QMoE.
func widened(s op.Site, in []*reference.Tensor) (op.Site, []*reference.Tensor) {
	wide := s
	wide.Attributes = append([]*onnx.Attribute{onnx.StringAttr("gate_up_layout", op.LayoutOutIn),
		onnx.StringAttr("down_layout", op.LayoutOutIn)}, s.Attributes[:5]...)
	list := append([]*reference.Tensor(nil), in[:3]...)
	var biases []*reference.Tensor
	for _, m := range expertMatrices {
		l := m.site(s)
		w := m.weights(s)
		n, k := w.N, w.K
		experts := in[m.inputs[0]].Shape[0]
		var all []float64
		for e := range experts {
			one := []*reference.Tensor{nil}
			for _, i := range m.inputs {
				one = append(one, nil)
				if s.Has(i) {
					one[len(one)-1] = part(in[i], e)
				}
			}
			for row := range int(n) {
				for column := range int(k) {
					all = append(all, optest.WeightAt(l, one, row, column))
				}
			}
		}
		list = append(list, reference.NewFloats(op.F32, []int{experts, int(n), int(k)}, all))
		var bias *reference.Tensor
		if i := m.inputs[5]; s.Has(i) {
			bias = in[i]
		}
		biases = append(biases, bias)
	}
	list = append(list, biases...)
	wide.Types = nil
	for _, v := range list {
		t := onnx.Undefined
		if v != nil {
			t = v.DataType
		}
		wide.Types = append(wide.Types, t)
	}
	return wide, list
}

// part is element i of the first dimension.
func part(t *reference.Tensor, i int) *reference.Tensor {
	shape, n := t.Shape[1:], t.Len()/t.Shape[0]
	if t.F != nil {
		return reference.NewFloats(t.DataType, shape, t.F[i*n:(i+1)*n])
	}
	return reference.NewInts(t.DataType, shape, t.I[i*n:(i+1)*n])
}

func TestQMoESupports(t *testing.T) {
	const i64, u8, i8, none = onnx.Int64, onnx.Uint8, onnx.Int8, onnx.Undefined
	attrs := func(form qmoeForm) []*onnx.Attribute {
		saved := qmoeExamples
		defer func() { qmoeExamples = saved }()
		qmoeExamples = []qmoeForm{form}
		return qmoeForms()[0].Attributes
	}
	base := qmoeForm{"silu", false, packHalves, q40, q80, 64, 96, activationsInt16, []int64{2}, 2, false, false}
	narrow, plain, clamped := base, base, base
	narrow.inner = 48
	plain.packing = packNone
	clamped.packing, clamped.clamped = packNone, true
	types := func(ts ...onnx.DataType) []onnx.DataType {
		return append([]onnx.DataType{op.F32, op.F32, i64, u8, op.F16, u8, op.F32}, ts...)
	}
	x, choice := []int64{5, 64}, []int64{5, 2}
	upCodes, upScale, downCodes := []int64{4, 12, 2, 4, 64}, []int64{4, 12, 2, 16}, []int64{4, 4, 3, 8, 64}
	optest.RunSupports(t, []optest.SupportsCase{
		{"plain", Op, attrs(base), types(),
			[][]int64{x, choice, choice, upCodes, upScale, downCodes, {4, 4, 3, 16}}, ""},
		{"unknown shapes", Op, attrs(base), types(), nil, ""},
		{"no gate", Op, attrs(plain), types(), [][]int64{x, choice, choice, {4, 6, 2, 4, 64}}, ""},
		{"no gate, panels of two", Op, attrs(plain), types(), [][]int64{x, choice, choice, upCodes},
			"codes of shape [E, P, hidden/32, 4, 64], here [E, 6, 2, 4, 64]"},
		{"no gate, clamped", Op, attrs(clamped), types(), nil, "must be 0 with packing"},
		{"odd blocks", Op, attrs(narrow), types(), nil, "inner is 48; it must be a multiple of 32"},
		{"narrow X", Op, attrs(base), types(), [][]int64{{5, 32}}, "X of shape [A..., H], here [A..., 64]"},
		{"other tokens", Op, attrs(base), types(), [][]int64{x, {4, 2}}, "as many weights as tokens"},
		{"other experts", Op, attrs(base), types(), [][]int64{x, choice, choice, upCodes, {5, 12, 2, 16}},
			"here [4, 12, 2, 16]: gate_up_scale is [5 12 2 16]"},
		{"scales of two levels alone", Op, attrs(base), append(types()[:4], i8, u8, op.F32), nil,
			"the weights gate_up: mojo.Linear"},
		{"a minus of the other matrix's type", Op, attrs(base), types(op.F32), nil, "gate_up_minus"},
		{"a bias", Op, attrs(base), types(none, none, none, none, none, none, none, op.F32),
			append(make([][]int64, 14), []int64{4, 64}), ""},
		{"a narrow bias", Op, attrs(base), types(none, none, none, none, none, none, none, op.F32),
			append(make([][]int64, 14), []int64{4, 96}), "bias of shape [E, hidden], here [E, 64]"},
		{"a half bias", Op, attrs(base), types(none, none, none, none, none, none, op.F16), nil,
			"gate_up_bias of float32"},
	})
}
