package golden

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

func TestCompareLogits(t *testing.T) {
	ln := func(p ...float64) []float32 {
		row := make([]float32, len(p))
		for i := range p {
			row[i] = float32(math.Log(p[i]) + 3) // a constant does not change a softmax
		}
		return row
	}
	half := ln(0.5, 0.5)
	tests := []struct {
		name            string
		dims            []int64
		got, want       []float32
		mean, max, top1 float64
		positions       int64
		undefined       int64
		worst           []int64
	}{
		{"equal", []int64{2, 3}, []float32{1, 2, 3, 3, 2, 1}, []float32{1, 2, 3, 3, 2, 1}, 0, 0, 1, 2, 0, nil},
		{"shifted by a constant", []int64{1, 3}, []float32{11, 12, 13}, []float32{1, 2, 3}, 0, 0, 1, 1, 0, nil},
		// 0.75 ln(0.75/0.5) + 0.25 ln(0.25/0.5); the other way round it would be 0.1438.
		{"expected 3:1, got 1:1, which ties", []int64{1, 2}, half, ln(0.75, 0.25), 0.130812, 0.130812, 0.5, 1, 0,
			[]int64{0}},
		{"mean and worst of two positions", []int64{2, 1, 2}, append(ln(0.25, 0.75), half...),
			append(ln(0.25, 0.75), ln(0.25, 0.75)...),
			0.065406, 0.130812, 0.75, 2, 0, []int64{1, 0}},
		{"other first choice", []int64{1, 2}, ln(0.25, 0.75), ln(0.75, 0.25), 0.549306, 0.549306, 0, 1, 0, []int64{0}},
		{"the same tie", []int64{1, 3}, []float32{5, 5, 0}, []float32{5, 5, 0}, 0, 0, 1, 1, 0, nil},
		{"ties that share one of three", []int64{1, 3}, []float32{5, 5, 0}, []float32{0, 5, 5}, 2.474818, 2.474818,
			1.0 / 3, 1, 0, []int64{0}},
		{"one class", []int64{3, 1}, []float32{1, 2, 3}, []float32{-7, 0, 7}, 0, 0, 1, 3, 0, nil},
		{"huge logits", []int64{1, 2}, []float32{3e38, -3e38}, []float32{3e38, -3e38}, 0, 0, 1, 1, 0, nil},
		{"a class masked on both sides", []int64{1, 3}, []float32{1, 1, -inf}, []float32{1, 1, -inf}, 0, 0, 1, 1, 0,
			nil},
		{"a class masked in the expected alone", []int64{1, 2}, []float32{0, 0}, []float32{0, -inf}, math.Ln2, math.Ln2,
			0.5, 1, 0, []int64{0}},
		{"a class masked that is expected", []int64{1, 2}, []float32{0, -inf}, []float32{0, 0}, math.Inf(1),
			math.Inf(1), 0.5, 1, 0, []int64{0}},
		{"masked where next to nothing is expected", []int64{1, 2}, []float32{0, -inf}, []float32{0, -2000},
			math.Inf(1), math.Inf(1), 1, 1, 0, []int64{0}},
		{"got NaN", []int64{2, 2}, []float32{nan, 1, 0, 1}, []float32{0, 1, 0, 1}, math.Inf(1), math.Inf(1), 0.5, 2, 0,
			[]int64{0}},
		{"got +Inf", []int64{1, 2}, []float32{inf, 1}, []float32{2, 1}, math.Inf(1), math.Inf(1), 0, 1, 0, []int64{0}},
		{"expected NaN", []int64{2, 2}, []float32{0, 1, 0, 1}, []float32{nan, 1, 0, 1}, 0, 0, 1, 1, 1, nil},
		{"expected all masked", []int64{1, 2}, []float32{0, 1}, []float32{-inf, -inf}, 0, 0, 1, 0, 1, nil},
		{"no positions", []int64{0, 4}, nil, nil, 0, 0, 1, 0, 0, nil},
		{"no classes", []int64{4, 0}, nil, nil, 0, 0, 1, 0, 0, nil},
		{"one row", []int64{2}, half, ln(0.75, 0.25), 0.130812, 0.130812, 0.5, 1, 0, []int64{}},
	}
	near := func(x Number, y float64) bool { return float64(x) == y || math.Abs(float64(x)-y) < 1e-5 }
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			s, err := CompareLogits(onnx.NewFloat32s("y", c.dims, c.got), onnx.NewFloat32s("y", c.dims, c.want))
			if err != nil {
				t.Fatal(err)
			}
			if !near(s.MeanKL, c.mean) || !near(s.MaxKL, c.max) || math.Abs(s.Top1-c.top1) > 1e-9 {
				t.Errorf("mean %v, max %v, top-1 %v; want %v, %v, %v", s.MeanKL, s.MaxKL, s.Top1, c.mean, c.max, c.top1)
			}
			if s.Positions != c.positions || s.Undefined != c.undefined || !slices.Equal(s.WorstPosition, c.worst) {
				t.Errorf("got %+v", s)
			}
			if _, err := json.Marshal(s); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCompareLogitsOfOtherTypes(t *testing.T) {
	want := onnx.NewFloat32s("y", []int64{1, 2}, []float32{1, 2})
	got, err := Convert(want, onnx.Float16)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := CompareLogits(got, want); err != nil || s.MaxKL != 0 || s.Classes != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, other := range []*onnx.Tensor{onnx.NewFloat32s("y", []int64{2, 1}, []float32{1, 2}),
		onnx.NewInt64s("y", []int64{1, 2})} {
		if _, err := CompareLogits(other, want); err == nil || !strings.Contains(err.Error(), "expected float32[1 2]") {
			t.Errorf("%v: got error %v", other.Dims, err)
		}
	}
	scalar := onnx.NewFloat32s("y", nil, []float32{1})
	if _, err := CompareLogits(scalar, scalar); err == nil {
		t.Error("a scalar has no axis of classes")
	}
}

func TestLogitLimits(t *testing.T) {
	number := func(x float64) *float64 { return &x }
	s := LogitStats{Positions: 10, MaxKL: 0.01, Top1: 0.9}
	tests := []struct {
		limits LogitLimits
		stats  LogitStats
		err    string
	}{
		{LogitLimits{}, LogitStats{MaxKL: Number(math.Inf(1))}, ""},
		{LogitLimits{MaxKL: number(0.01), MinTop1: number(0.9)}, s, ""},
		{LogitLimits{MaxKL: number(0.009)}, s, "KL divergence 0.01"},
		{LogitLimits{MinTop1: number(0.91)}, s, "agrees at 90% of 10 positions"},
		{LogitLimits{MaxKL: number(1)}, LogitStats{Positions: 1, MaxKL: Number(math.Inf(1))}, "KL divergence +Inf"},
		{LogitLimits{MaxKL: number(1)}, LogitStats{Undefined: 3, Top1: 1}, "no position can be compared"},
	}
	for _, c := range tests {
		err := c.limits.Check(&c.stats)
		if c.stats.Passed != (err == nil) {
			t.Errorf("%+v: passed with %v", c.stats, err)
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: got %v, want %q", c.stats, err, c.err)
		}
	}
}

func TestIsLogits(t *testing.T) {
	of := func(name string, dt onnx.DataType, dims ...int64) *onnx.Tensor {
		return &onnx.Tensor{Name: name, DataType: dt, Dims: dims}
	}
	tests := []struct {
		tensor     *onnx.Tensor
		vocabulary int64
		want       bool
	}{
		{of("linear_9", onnx.Float16, 2, 7, 160), 160, true},
		{of("hidden", onnx.Float, 2, 7, 64), 160, false},
		{of("ids", onnx.Int64, 2, 160), 160, false},
		{of("logits", onnx.Float, 2, 64), 0, true},
		{of("other", onnx.Float, 2, 1), 1, false},
		{of("logits", onnx.Float), 0, false},
	}
	for _, c := range tests {
		if got := IsLogits(c.tensor, c.vocabulary); got != c.want {
			t.Errorf("%s%v: %v", c.tensor.Name, c.tensor.Dims, got)
		}
	}
}

// TestVocabulary reads the vocabulary of a bundled export.
func TestVocabulary(t *testing.T) {
	m, err := onnx.Read("../models/llama-kv-dynamo-fp32.onnx")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if v := Vocabulary(m); v != 160 {
		t.Errorf("got %d", v)
	}
}
