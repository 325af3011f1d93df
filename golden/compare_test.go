package golden_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func floats(v ...float32) *onnx.Tensor { return onnx.NewFloat32s("y", []int64{int64(len(v))}, v) }

func compare(t *testing.T, got, want *onnx.Tensor, tol golden.Tolerance) golden.Stats {
	t.Helper()
	s, err := golden.Compare(got, want, tol)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func near(a golden.Number, b float64) bool { return math.Abs(float64(a)-b) <= 1e-6*math.Abs(b) }

func TestStats(t *testing.T) {
	want := onnx.NewFloat32s("y", []int64{2, 3}, []float32{1, 2, 0, -4, 8, 0})
	got := onnx.NewFloat32s("z", []int64{2, 3}, []float32{1, 2.5, 0, -5, 8, 0.25})
	s := compare(t, got, want, golden.Tolerance{Abs: 0.5})
	if s.Name != "y" || s.Elements != 6 || s.Within != 5 || s.Passed {
		t.Errorf("%+v", s)
	}
	for _, c := range []struct {
		what string
		got  golden.Number
		want float64
	}{
		{"max abs", s.MaxAbs, 1}, {"mean abs", s.MeanAbs, 1.75 / 6}, {"max rel", s.MaxRel, 0.25},
		{"mean rel", s.MeanRel, 0.5 / 4},
		{"max want", s.MaxWant, 8}, {"max ulp", s.MaxULP, 1 / math.Ldexp(1, 3-23)},
		{"cosine", s.Cosine, 90 / math.Sqrt(85) / math.Sqrt(1+6.25+25+64+0.0625)},
		{"relative l2", s.RelativeL2, math.Sqrt((0.25 + 1 + 0.0625) / 85)},
	} {
		if !near(c.got, c.want) {
			t.Errorf("%s is %v, want %v", c.what, c.got, c.want)
		}
	}
	if w := s.Worst; w == nil || !slices.Equal(w.Index, []int64{1, 0}) || w.Got != -5 || w.Want != -4 {
		t.Errorf("worst is %+v", w)
	}
	for _, part := range []string{"FAILED y float32[2 3]", "5 of 6", "abs 0.5", "[1 0]"} {
		if !strings.Contains(s.Summary(), part) {
			t.Errorf("the summary lacks %q: %s", part, s.Summary())
		}
	}
	if s = compare(t, got, want, golden.Tolerance{Abs: 0.5, Share: 0.8}); !s.Passed {
		t.Error("5 of 6 are within, 80% must be: " + s.Summary())
	}
	if s = compare(t, got, want, golden.Tolerance{Abs: 0.25, Rel: 0.25}); !s.Passed {
		t.Error(s.Summary())
	}
	if s = compare(t, want, want, golden.Tolerance{}); !s.Passed || s.Worst != nil || s.Cosine != 1 || s.MaxAbs != 0 {
		t.Errorf("%+v", s)
	}
}

func TestNonFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tol := golden.Tolerance{Abs: 1, Rel: 1}
	same := floats(nan, inf, -inf, 1)
	if s := compare(t, same, floats(nan, inf, -inf, 1.5), tol); !s.Passed ||
		s.Got != (golden.NonFinite{NaN: 1, Inf: 2}) || s.Got != s.Want || s.MaxAbs != 0.5 {
		t.Errorf("%+v", s)
	}
	for _, pair := range [][2]float32{{nan, 1}, {1, nan}, {inf, -inf}, {inf, 1}, {1, inf}, {nan, inf}} {
		s := compare(t, floats(5, pair[0]), floats(4, pair[1]), tol)
		if s.Passed || s.Within != 1 || s.Worst == nil || s.Worst.Index[0] != 1 {
			t.Errorf("%v: %s", pair, s.Summary())
		}
		if b, err := json.Marshal(s); err != nil {
			t.Error(err)
		} else if err := json.Unmarshal(b, &s); err != nil {
			t.Error(err, string(b))
		}
	}
}

func TestMismatch(t *testing.T) {
	x := floats(1, 2)
	for _, other := range []*onnx.Tensor{
		onnx.NewFloat32s("y", []int64{1, 2}, []float32{1, 2}), floats(1), onnx.NewInt64s("y", []int64{1, 2}),
	} {
		_, err := golden.Compare(x, other, golden.Tolerance{})
		var mismatch *golden.MismatchError
		if !errors.As(err, &mismatch) || !strings.Contains(err.Error(), "float32[2]") ||
			!strings.Contains(err.Error(), `"y"`) {
			t.Error(err)
		}
	}
}

func TestIntegersAreExact(t *testing.T) {
	big := int64(1) << 60
	a, b := onnx.NewInt64s("y", []int64{1, big}), onnx.NewInt64s("y", []int64{1, big + 1})
	if s := compare(t, a, b, golden.DefaultTolerance(onnx.Int64)); s.Passed || s.Within != 1 || s.Worst == nil ||
		s.Worst.Index[0] != 1 {
		t.Error("2^60 and 2^60+1 count as equal: " + s.Summary())
	}
	if s := compare(t, b, b, golden.Tolerance{}); !s.Passed {
		t.Error(s.Summary())
	}
	for i := range int64(2) { // the worst is the first of equal ones, which float64 cannot distinguish
		a, b := onnx.NewInt64s("y", []int64{big, big, big}), onnx.NewInt64s("y", []int64{big - i + 1, big + 1, big + 1})
		if s := compare(t, a, b, golden.DefaultTolerance(onnx.Int64)); s.Worst == nil || s.Worst.Index[0] != i {
			t.Errorf("from %d on another: %s, worst %v", i, s.Summary(), s.Worst)
		}
	}
	c := onnx.NewInt64s("y", []int64{3, big})
	if s := compare(t, c, a, golden.Tolerance{Abs: 2}); !s.Passed {
		t.Error("a tolerance the user gave is not used: " + s.Summary())
	}
	x, y := tensor(t, "y", onnx.Bool, []int64{2}, []byte{1, 0}), tensor(t, "y", onnx.Bool, []int64{2}, []byte{1, 1})
	if s := compare(t, x, y, golden.DefaultTolerance(onnx.Bool)); s.Passed || s.Within != 1 {
		t.Error(s.Summary())
	}
}

func TestHalfTolerance(t *testing.T) {
	half := func(v ...uint16) *onnx.Tensor {
		var raw []byte
		for _, x := range v {
			raw = binary.LittleEndian.AppendUint16(raw, x)
		}
		return tensor(t, "y", onnx.Float16, []int64{int64(len(v))}, raw)
	}
	// 0x4800 is 8: its ulp is 2^-7. 0x2800 is 2^-5 = 4 ulp of the largest; 0x2801 is a bit more.
	want := half(0x4800, 0)
	if s := compare(t, half(0x4800, 0x2800), want, golden.DefaultTolerance(onnx.Float16)); !s.Passed || s.MaxULP != 4 {
		t.Error(s.Summary())
	}
	if s := compare(t, half(0x4800, 0x2801), want, golden.DefaultTolerance(onnx.Float16)); s.Passed {
		t.Error(s.Summary())
	}
	brain := func(hi byte) *onnx.Tensor { return tensor(t, "y", onnx.BFloat16, []int64{1}, []byte{hi, 0x3f}) }
	if s := compare(t, brain(0x84), brain(0x80), golden.DefaultTolerance(onnx.BFloat16)); !s.Passed || s.MaxULP != 4 {
		t.Error(s.Summary())
	}
	if s := compare(t, brain(0x85), brain(0x80), golden.DefaultTolerance(onnx.BFloat16)); s.Passed {
		t.Error(s.Summary())
	}
}

func TestEmptyAndZero(t *testing.T) {
	e := floats()
	if s := compare(t, e, e, golden.Tolerance{}); !s.Passed || s.Share != 1 || s.Cosine != 1 {
		t.Errorf("%+v", s)
	}
	if s := compare(t, floats(1e-9), floats(0), golden.Tolerance{Abs: 1e-6}); !s.Passed || s.Cosine != 0 ||
		s.MaxRel != 0 {
		t.Errorf("%+v", s)
	}
}

func TestCompareAll(t *testing.T) {
	a, b := onnx.NewInt64s("a", []int64{1}), floats(1)
	tol, err := golden.ParseTolerances(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := golden.CompareAll([]*onnx.Tensor{b, a}, []*onnx.Tensor{a, b}, tol)
	if err != nil || len(all) != 2 || all[0].Name != "a" || !golden.Passed(all) {
		t.Error(all, err)
	}
	all, err = golden.CompareAll([]*onnx.Tensor{floats(2)}, []*onnx.Tensor{a, b}, tol)
	if err == nil || !strings.Contains(err.Error(), `"a" is missing`) || len(all) != 1 || golden.Passed(all) {
		t.Error(all, err)
	}
}

func TestParseTolerances(t *testing.T) {
	tol, err := golden.ParseTolerances([]string{"1e-3", "out:0:0.5"}, []string{"logits:1e-2"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		dt   onnx.DataType
		want golden.Tolerance
	}{
		{"logits", onnx.Float, golden.Tolerance{Abs: 1e-3, Rel: 1e-2}},
		{"out:0", onnx.Float, golden.Tolerance{Abs: 0.5, Rel: 1e-4}},
		{"other", onnx.Float16, golden.Tolerance{Abs: 1e-3}},
		{"ids", onnx.Int64, golden.Tolerance{Abs: 1e-3}},
	} {
		if got := tol.For(c.name, c.dt); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := (golden.Tolerances{}).For("x", onnx.BFloat16); got != (golden.Tolerance{ULP: 4}) {
		t.Error(got)
	}
	if err := tol.Check([]string{"logits", "out:0"}); err != nil {
		t.Error(err)
	}
	if err := tol.Check([]string{"out:0"}); err == nil || !strings.Contains(err.Error(), "logits") {
		t.Error(err)
	}
	for _, bad := range []string{"", "x", "-1", "nan", "inf", "x:", ":1", "a:b"} {
		if _, err := golden.ParseTolerances([]string{bad}, nil); err == nil ||
			!strings.Contains(err.Error(), "--atol") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := golden.ParseTolerances(nil, []string{"1", "2"}); err == nil ||
		!strings.Contains(err.Error(), "--rtol") {
		t.Error(err)
	}
}

// TestCompareFloatTypes compares a float32 output of a float16 export with float16 goldens, in ulp of float16.
func TestCompareFloatTypes(t *testing.T) {
	want, err := golden.Convert(floats(1, 2.5, -8), onnx.Float16)
	if err != nil {
		t.Fatal(err)
	}
	all, err := golden.CompareAll([]*onnx.Tensor{floats(1, 2.5, -8.03)}, []*onnx.Tensor{want}, golden.Tolerances{})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	s := all[0]
	if !s.Passed || s.DataType != "float16" || s.GotType != "float32" || s.MaxULP < 3.8 || s.MaxULP > 3.9 {
		t.Errorf("%+v: want a pass with 0.03 / 2^-7 = 3.84 ulp", s)
	}
	if all, err = golden.CompareAll([]*onnx.Tensor{floats(1, 2.5, -8.04)}, []*onnx.Tensor{want},
		golden.Tolerances{}); err != nil || golden.Passed(all) {
		t.Errorf("%+v, %v: 5.12 ulp must not pass", all, err)
	}
}
