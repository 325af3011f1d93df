package golden_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func hard(t *testing.T, m *onnx.Model, dims map[string]int64) map[string]golden.Hard {
	t.Helper()
	list, err := golden.HardInputs(m, 3, dims)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]golden.Hard{}
	for _, h := range list {
		byName[h.Name] = h
	}
	if len(byName) != len(list) {
		t.Errorf("%d names for %d sets of inputs", len(byName), len(list))
	}
	return byName
}

func TestHardInputs(t *testing.T) {
	m := decoder(spec{"input_ids", onnx.Int64, "b s"}, spec{"attention_mask", onnx.Int64, "b t"},
		spec{"position_ids", onnx.Int64, "b s"}, spec{"past_k", onnx.Float, "b =2 p =4"})
	window := m.Graph.AddInitializer(onnx.NewInt64s("window", []int64{300}))
	out := m.Graph.NewValue("windowed")
	m.Graph.AddNode("Mul", []*onnx.Value{m.Graph.Inputs[1], window}, []*onnx.Value{out})
	m.Graph.AddOutput(out)
	all := hard(t, m, nil)
	if len(all) != 16 {
		t.Errorf("%d sets of inputs", len(all))
	}
	for name, want := range map[string]struct{ mask, positions []int64 }{
		"padding on the left, 3 tokens behind 5": {[]int64{
			0, 0, 1, 1, 1, 1, 1, 1,
			0, 0, 0, 0, 1, 1, 1, 1,
			1, 1, 1, 1, 1, 1, 1, 1}, []int64{3, 4, 5, 1, 2, 3, 5, 6, 7}},
		"padding on the right, 3 tokens behind 5": {[]int64{
			1, 1, 1, 1, 1, 1, 0, 0,
			1, 1, 1, 1, 0, 0, 0, 0,
			1, 1, 1, 1, 1, 1, 1, 1}, []int64{5, 6, 6, 4, 4, 4, 5, 6, 7}},
		"holes, 1 token behind 6": {[]int64{
			1, 0, 1, 1, 0, 1, 1,
			0, 1, 1, 0, 1, 1, 0,
			1, 1, 0, 1, 1, 0, 1}, []int64{4, 4, 4}},
		"a row of only padding, 7 tokens": {slices.Concat(make([]int64, 7), slices.Repeat([]int64{1}, 14)),
			[]int64{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6}},
	} {
		h, ok := all[name]
		if !ok {
			t.Fatalf("there is no %q", name)
		}
		if got := ints(t, h.Inputs[1]); !slices.Equal(got, want.mask) {
			t.Errorf("%s: the mask is %v, want %v", name, got, want.mask)
		}
		if got := ints(t, h.Inputs[2]); !slices.Equal(got, want.positions) {
			t.Errorf("%s: positions are %v, want %v", name, got, want.positions)
		}
	}
	shape(t, all["a long context, 3 tokens behind 300"].Inputs[3], 1, 2, 300, 4)
	if n := len(hard(t, decoder(spec{"input_ids", onnx.Int64, "b s"}), nil)); n != 2 {
		t.Errorf("%d sets of inputs for a model without a mask", n)
	}
	for name, h := range hard(t, m, map[string]int64{"b": 1, "sequence": 2}) {
		shape(t, h.Inputs[0], 1, 2)
		if mask := ints(t, h.Inputs[1]); strings.HasPrefix(name, "padding") && !slices.Contains(mask, 0) {
			t.Errorf("%s: the mask of the only row is %v", name, mask)
		}
	}
}

// TestHardMasks checks masks with an axis for the new tokens.
func TestHardMasks(t *testing.T) {
	for dt, excluded := range map[onnx.DataType]float64{onnx.Float: -1e9, onnx.Float16: -65504, onnx.Int64: 0} {
		m := decoder(spec{"input_ids", onnx.Int64, "b s"}, spec{"mask", dt, "b =1 s t"},
			spec{"past_k", onnx.Float, "b =2 p =4"})
		all := hard(t, m, map[string]int64{"batch": 1, "sequence": 2, "past": 3})
		h := all["padding on the left, 2 tokens behind 3"]
		shape(t, h.Inputs[1], 1, 1, 2, 5)
		got, err := golden.Float64s(h.Inputs[1])
		if err != nil {
			t.Fatal(err)
		}
		for i, seen := range []bool{false, false, true, true, false, false, false, true, true, true} {
			want := 0.0
			if seen == (dt == onnx.Int64) {
				want = 1
			}
			if dt != onnx.Int64 {
				want *= excluded
			}
			if float32(got[i]) != float32(want) {
				t.Errorf("%s: element %d is %g, want %g", dt, i, got[i], want)
			}
		}
	}
}

func TestWithoutPadding(t *testing.T) {
	m := decoder(spec{"input_ids", onnx.Int64, "b s"}, spec{"attention_mask", onnx.Int64, "b t"},
		spec{"past_k", onnx.Float, "b =1 p =1"})
	h := hard(t, m, map[string]int64{"past": 1, "sequence": 3})["padding on the left, 3 tokens behind 1"]
	ones := func(name string, dims ...int64) *onnx.Tensor {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		return onnx.NewFloat32s(name, dims, slices.Repeat([]float32{1}, int(n)))
	}
	got, err := h.WithoutPadding([]*onnx.Tensor{ones("logits", 3, 3, 2), ones("cache", 3, 1, 4, 1),
		ones("buffer", 3, 1, 5, 1), ones("other", 2, 2)})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]float64{
		{0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1},
		{0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1},
		{0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1},
		{1, 1, 1, 1},
	} {
		x, err := golden.Float64s(got[i])
		if err != nil || !slices.Equal(x, want) {
			t.Errorf("%s is %v, want %v (%v)", got[i].Name, x, want, err)
		}
	}
}
