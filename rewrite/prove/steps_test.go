package prove

import (
	"math"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestSteps demands that results differ only beside the middle between them.
func TestSteps(t *testing.T) {
	const off = 1e-6
	for _, x := range []struct {
		number, want, got float64
		float8, settle    bool
	}{
		{number: 62.5, want: 62, got: 63, settle: true},
		{number: 62.5, want: 62, got: 64},
		{number: 62.4, want: 62, got: 63},
		{number: -1.5000001, want: -2, got: -1, settle: true},
		{number: math.NaN(), want: 0, got: -128, settle: true},
		{number: 432, want: 448, got: 416, float8: true, settle: true},
		{number: 432, want: 448, got: 432, float8: true, settle: true}, // as an exact evaluation leaves it
		{number: 431, want: 416, got: 448, float8: true},
		{number: 0x1p-10, want: 0, got: 0x1p-9, float8: true, settle: true},
	} {
		s := &Steps{least: []float64{x.number * (1 - off)}, most: []float64{x.number * (1 + off)}}
		of := func(v float64) *reference.Tensor {
			if x.float8 {
				return reference.NewFloats(onnx.Float8E4M3FN, []int{1}, []float64{v})
			}
			return reference.NewInts(onnx.Int8, []int{1}, []int64{int64(v)})
		}
		want, got := of(x.want), []*reference.Tensor{of(x.got)}
		s.Settle(0, []*reference.Tensor{want}, got)
		if settled := slices.Equal(want.I, got[0].I) && slices.Equal(want.F, got[0].F); settled != x.settle {
			t.Errorf("%g as %g instead of %g: settled is %v", x.number, x.got, x.want, settled)
		}
	}
}

// TestKernelSteps compares possible results of a kernel for NormQuantize. Only the number at a middle may differ.
func TestKernelSteps(t *testing.T) {
	site := fused.Site{Attributes: fused.NormQuantize{LeastScale: 1e-9}.Attributes(), Opset: 18,
		Types: []onnx.DataType{onnx.Float, onnx.Float, onnx.Int8}, Dims: [][]int64{{1, 4}, {4}, {1}}}
	// The norm of ones is the scale, and its greatest number is 127: Y is the scale, rounded.
	in := []*reference.Tensor{reference.NewFloats(onnx.Float, []int{1, 4}, []float64{1, 1, 1, 1}),
		reference.NewFloats(onnx.Float, []int{4}, []float64{127, 2.5, 7.2, -3}),
		reference.NewInts(onnx.Int8, []int{1}, []int64{0})}
	run := &KernelRun{Op: fused.Lookup(fused.NormQuantizeName), Site: site, In: in}
	definition, err := run.definition()
	if err != nil {
		t.Fatal(err)
	}
	if run.Want, err = definition(reference.Options{}, in); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		y    []int64
		good bool
	}{{[]int64{127, 2, 7, -3}, true}, {[]int64{127, 3, 7, -3}, true}, {[]int64{127, 2, 8, -3}, false},
		{[]int64{127, 1, 7, -3}, false}, {[]int64{126, 2, 7, -3}, false}} {
		got := append([]*reference.Tensor{reference.NewInts(onnx.Int8, []int{1, 4}, x.y)}, run.Want[1:]...)
		if _, err := run.Compare(got); (err == nil) != x.good {
			t.Errorf("Y is %v, the definition returns %v: %v", x.y, run.Want[0].I, err)
		}
	}
	for exact, off := range map[bool]float64{true: StructuralTolerance,
		false: AllowedULPs(onnx.Float, 4) * Spacing(onnx.Float, 1)} {
		s, err := StepsOf(run.Op, site, in, reference.Options{Exact: exact})
		if err != nil {
			t.Fatal(err)
		}
		for i, y := range in[1].F { // the norm, its scale and their quotient are rounded
			if math.Abs(s.least[i]/y-1+3*off) > off/2 || math.Abs(s.most[i]/y-1-3*off) > off/2 || s.scales != nil {
				t.Errorf("exact %v: %g lies between %g and %g", exact, y, s.least[i], s.most[i])
			}
		}
	}
}

// TestHalfSteps has a norm at the middle between two numbers of bfloat16, and one far from a middle. Only the first may
// differ, and its scale with it.
func TestHalfSteps(t *testing.T) {
	epsilon := math.Pow(1-0x1p-9, -2) - 1 // takes 1 to the middle between 1 and the number below it, 1 - 2^-8
	site := fused.Site{Attributes: fused.NormQuantize{Epsilon: float32(epsilon), ScaleAfterCast: true,
		LeastScale: 1e-9}.Attributes(), Opset: 18,
		Types: []onnx.DataType{onnx.BFloat16, onnx.BFloat16, onnx.Int8}, Dims: [][]int64{{2, 2}, {2}, {1}}}
	in := []*reference.Tensor{reference.NewFloats(onnx.BFloat16, []int{2, 2}, []float64{1, 1, 2, 2}),
		reference.NewFloats(onnx.BFloat16, []int{2}, []float64{1, 0.5}),
		reference.NewInts(onnx.Int8, []int{1}, []int64{0})}
	s, err := StepsOf(fused.Lookup(fused.NormQuantizeName), site, in, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const below = 1 - 0x1p-8
	for i, want := range [][2]float64{{127 * below, 127 / below}, {63.5 * below, 63.5 / below}, {127, 127},
		{63.5, 63.5}} {
		if math.Abs(s.least[i]-want[0]) > 1e-3 || math.Abs(s.most[i]-want[1]) > 1e-3 {
			t.Errorf("number %d lies between %g and %g, not %g", i, s.least[i], s.most[i], want)
		}
	}
	for i, want := range []float64{1 / below, 1} {
		if math.Abs(s.scales[i]-want) > 1e-5 {
			t.Errorf("scales of row %d have the ratio %g, want %g", i, s.scales[i], want)
		}
	}
	want, got := reference.NewFloats(onnx.Float, []int{2, 1}, []float64{1, 1}),
		reference.NewFloats(onnx.Float, []int{2, 1}, []float64{below, below})
	list := []*reference.Tensor{nil, got}
	s.Settle(0, []*reference.Tensor{nil, want}, list)
	if list[1].F[0] != 1 || list[1].F[1] != below {
		t.Errorf("scales of %g become %v: only the first may be 1", got.F, list[1].F)
	}
}

// TestScoreErrors: some errors lower an expert in the choice and raise the next one, or the last one and all others.
func TestScoreErrors(t *testing.T) {
	for place := range 6 {
		for _, next := range []int{place + 1, -1} {
			if !slices.ContainsFunc(scoreErrors, func(sign func(int) float64) bool {
				return sign(place) == -1 && sign(next) == 1
			}) {
				t.Errorf("no errors exchange the places %d and %d", place, next)
			}
		}
	}
}
