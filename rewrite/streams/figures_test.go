package streams

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestReportText: the text has a line for each fact of the report, and leaves out facts that do not apply.
func TestReportText(t *testing.T) {
	full := SafeReport{Inputs: 2, Recorded: true, Headroom: 4, Greatest: 70000, GreatestOf: "stream", Overflowing: 3,
		Scaled:    []Scaled{{"first", -5, 9, 70000, "stream"}},
		Bridges:   []Bridge{{"logits", "head", 5}},
		Constants: 6, Epsilons: 1, Lost: 1, Stays: []Stay{{"sum", "adds", "ReduceSum", 1e6, "no law"}},
		Compare: []Variant{
			{Type: "float16", Safe: true, Error: 0.125, Logits: &golden.LogitStats{MeanKL: 0.5, Top1: 0.75}},
			{Type: "bfloat16", NotFinite: 7, FirstNaN: "norm", Error: golden.Number(math.Inf(1))}}}
	want := []string{
		"float16: greatest magnitude 7e+04 (stream) on 2 recorded inputs; 3 values beyond 65504 divided by a " +
			"headroom of 4",
		`scaled by 2^-5: 9 values from "first" on, greatest magnitude before 7e+04 (stream)`,
		"scaled: 6 constants and 1 epsilon attribute; 1 node added",
		`added: node "head" multiplies "logits" by 2^5 between the stream and nodes that do not scale`,
		"scaled: 1 elements of constants become 0 in float16",
		`stays in float32: "sum" of node "adds" (ReduceSum), magnitude 1e+06: no law`,
		"against float32: float16 --safe error 0.125, mean KL 0.5, top-1 75%",
		`against float32: bfloat16       error +Inf, 7 elements not finite, NaN from node "norm" on`}
	if got := full.Text(); got != strings.Join(want, "\n")+"\n" {
		t.Errorf("the text is\n%s, want\n%s", got, strings.Join(want, "\n"))
	}
	none := SafeReport{Inputs: 1, Headroom: 1, Greatest: 2, GreatestOf: "x"}
	if got := none.Text(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "on 1 random input; 0 values") {
		t.Errorf("without changes: %s", got)
	}
}

// TestMagnitudes: the largest magnitude leaves out infinities, NaN and elements of masks.
func TestMagnitudes(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for name, c := range map[string]struct {
		list     []float64
		level    float64 // from which a mask hides something; 0 if it is not a mask
		greatest float64
		finite   bool
	}{
		"numbers":             {[]float64{1, -3, 2}, 0, 3, true},
		"infinities":          {[]float64{1, -inf, inf, 2}, 0, 2, false},
		"NaN":                 {[]float64{1, nan, -2}, 0, 2, false},
		"a mask":              {[]float64{0, -1e5, 0}, 5e4, 0, true},
		"the greatest mask":   {[]float64{0, -inf}, math.MaxFloat32 / 2, 0, false},
		"a mask with numbers": {[]float64{0.5, -math.MaxFloat32}, math.MaxFloat32 / 2, 0.5, true},
		"no mask of numbers":  {[]float64{0.5, -1e5}, 0, 1e5, true},
		"too small for one":   {[]float64{0, -9000}, 0, 9000, true},
		"between":             {[]float64{0, -1e5, -1e4}, 0, 1e5, true},
		"great numbers":       {[]float64{70000, -math.MaxFloat32}, 0, math.MaxFloat32, true},
	} {
		level, is := maskLevel(c.list)
		if is != (c.level > 0) || level != c.level {
			t.Errorf("%s: hides from %g on, %v", name, level, is)
		}
		limit := inf
		if is {
			limit = level
		}
		if got := greatest(c.list, limit); got != c.greatest || allFinite(c.list) != c.finite {
			t.Errorf("%s: the greatest magnitude is %g, want %g", name, got, c.greatest)
		}
	}
}

// TestElementsOfConstants visits every element, also of long constants, and knows which vanish in float16.
func TestElementsOfConstants(t *testing.T) {
	long := make([]float32, 1<<16+3)
	long[1<<16+2], long[5], long[6] = -7, 3, float32(math.Inf(1))
	double, err := onnx.NewTensor("d", onnx.Double, []int64{1}, []byte{0, 0, 0, 0, 0, 0, 0, 0xc0}) // -2
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		t    *onnx.Tensor
		most float64
		n    int
	}{{onnx.NewFloat32s("long", []int64{int64(len(long))}, long), 7, len(long)},
		{onnx.NewFloat32s("zeros", []int64{2}, []float32{0, 0}), 0, 2}, {double, 2, 1},
		{onnx.NewFloat32s("none", []int64{0}, nil), 0, 0}} {
		n := 0
		err := each(c.t, func(float64) { n++ })
		_, most, err2 := rangeOf(c.t)
		if err != nil || err2 != nil || most != c.most || n != c.n || isZero(c.t) != (c.most == 0) {
			t.Errorf("%s: %d elements up to %g, %v", c.t.Name, n, most, err)
		}
	}
	if ints := onnx.NewInt64s("ints", []int64{0}); each(ints, nil) == nil || isZero(ints) {
		t.Error("integers are visited")
	}
	if !isLost(0x1p-25) || !isLost(-0x1p-30) || isLost(0x1.1p-25) || isLost(-1) {
		t.Error("not the numbers that float16 rounds to 0")
	}
}

// TestDifferences: the error is the largest one of the outputs, relative to their root mean square.
func TestDifferences(t *testing.T) {
	var v Variant
	v.differ([]float64{3, 4.5}, []float64{3, 4})        // 0.5 of 5
	v.differ([]float64{1.01, 1}, []float64{1, 1})       // less
	v.differ([]float64{1, 2}, []float64{0, math.NaN()}) // of zeros
	if math.Abs(float64(v.Error)-0.1) > 1e-12 || v.NotFinite != 0 {
		t.Errorf("%+v", v)
	}
	v.differ([]float64{math.Inf(1), math.NaN(), 1}, []float64{1, 1, 1})
	if v.NotFinite != 2 || !math.IsInf(float64(v.Error), 1) {
		t.Errorf("%+v", v)
	}
	all := together([]golden.LogitStats{{Classes: 5, Positions: 1, MeanKL: 1, MaxKL: 2, Top1: 1},
		{Classes: 5, Positions: 3, MeanKL: 2, MaxKL: 1, Top1: 0.5, Undefined: 1}})
	if all.Positions != 4 || all.MeanKL != 1.75 || all.Top1 != 0.625 || all.MaxKL != 2 || all.Undefined != 1 ||
		all.Classes != 5 || together(nil) != nil {
		t.Errorf("%+v", all)
	}
}

// TestDeclaredTypes: inputs get the declared types, and an input that the model lacks is an error.
func TestDeclaredTypes(t *testing.T) {
	b := onnxtest.New(18)
	b.Output(b.Op("Neg", b.Input("half", onnx.Float16, 1)))
	b.Output(b.Op("Neg", b.Input("ids", onnx.Int64, 1)))
	given, err := asDeclared(b.Model, []*onnx.Tensor{onnx.NewFloat32s("half", []int64{1}, []float32{1 + 0x1p-12}),
		onnx.NewInt64s("ids", []int64{7})})
	if err != nil || given["half"].DataType != onnx.Float16 || given["half"].F[0] != 1 || given["ids"].I[0] != 7 {
		t.Errorf("%v, %v", given, err)
	}
	if _, err := run(b.Model, []*onnx.Tensor{onnx.NewInt64s("other", []int64{7})}, nil); err == nil ||
		!strings.Contains(err.Error(), `no input "other"`) {
		t.Errorf("another input: %v", err)
	}
}

// TestEquations solves equations between exponents, constants first. Exponents that only fractions solve are 0.
func TestEquations(t *testing.T) {
	build := func(sinks []bool, equations ...sum) *system {
		s := new(system)
		for _, sink := range sinks {
			s.add(sink)
		}
		for _, e := range equations {
			s.equate(e)
		}
		return s
	}
	is := func(s *system, v int, want sum) {
		t.Helper()
		got := s.of(v)
		if !slices.Equal(sortedKeys(got), sortedKeys(want)) {
			t.Errorf("exponent %d is %v, want %v", v, got, want)
			return
		}
		for k, f := range want {
			if got[k] != f {
				t.Errorf("exponent %d is %v, want %v", v, got, want)
			}
		}
	}
	s := build([]bool{false, false, true}, sum{0: 1, 2: 1, 1: -1}) // a + w = b
	is(s, 2, sum{0: -1, 1: 1})
	is(s, 0, sum{0: 1})
	s = build([]bool{false, false, false}, sum{0: 1, 1: -1}, sum{1: 2, 2: -2}) // a = b, 2b = 2c
	is(s, 1, sum{0: 1})
	is(s, 2, sum{0: 1})
	s = build([]bool{false, false}, sum{0: 2, 1: -3}) // only fractions
	is(s, 0, sum{})
	is(s, 1, sum{})
	s = build([]bool{false, false}, sum{0: 1, 1: -1}, sum{0: 1, 1: 1}) // a = b, a = -b
	is(s, 0, sum{})
	is(s, 1, sum{})
	s = build([]bool{false, false}, sum{0: 4, 1: -2}) // b = 2a
	is(s, 1, sum{0: 2})
	for want, in := range map[int][2]int{6: {12, -18}, 5: {0, 5}, 0: {0, 0}, 1: {7, 3}} {
		if got := gcd(in[0], in[1]); got != want {
			t.Errorf("%v have the divisor %d, want %d", in, got, want)
		}
	}
}

// TestMadeValues: values computed only from constants and integers are not measured, except rows of tables that
// integers choose.
func TestMadeValues(t *testing.T) {
	b := onnxtest.New(18)
	ids, x := b.Input("ids", onnx.Int64, 2), b.Input("x", onnx.Float, 2)
	table := b.Floats([]int64{3}, 1, 2, 3)
	toFloat := onnx.IntAttr("to", int64(onnx.Float))
	mask := b.Op("Mul", b.Op("Cast", ids, toFloat), b.Floats(nil, -1e9))
	for name, c := range map[string]struct {
		v    *onnx.Value
		made bool
	}{
		"a mask": {mask, true}, "of a mask": {b.Op("Neg", mask), true}, "of numbers": {b.Op("Exp", table), true},
		"a chosen row":        {b.Op("Gather", table, ids), false},
		"a fixed row":         {b.Op("Gather", table, b.Ints(1)), true},
		"a row of integers":   {b.Op("Gather", b.Ints(1, 2), ids), true},
		"data":                {b.Op("Neg", x), false},
		"data and a mask":     {b.Op("Add", x, mask), false},
		"without an input":    {b.Op("Clip", mask, nil, b.Floats(nil, 1)), true},
		"an integer of data":  {b.Op("Shape", x), true},
		"a float of integers": {b.Op("Cast", b.Op("Shape", x), toFloat), true},
	} {
		isFloat := func(v *onnx.Value) bool { return infer.Analyze(b.Model).DataType(v).IsFloat() }
		if got := newRanges(b.Model, isFloat).made[c.v]; got != c.made {
			t.Errorf("%s: made %v", name, got)
		}
	}
}
