package generate

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// numbers returns the elements of a tensor.
func numbers(t *testing.T, x *onnx.Tensor) []float64 {
	t.Helper()
	b, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var list []float64
	for i := range int(x.Len()) {
		switch x.DataType {
		case onnx.Int64:
			list = append(list, float64(int64(binary.LittleEndian.Uint64(b[8*i:]))))
		case onnx.Int32:
			list = append(list, float64(int32(binary.LittleEndian.Uint32(b[4*i:]))))
		case onnx.Float:
			list = append(list, float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))))
		case onnx.Bool:
			list = append(list, float64(b[i]))
		default:
			t.Fatalf("%s is of %s", x.Name, x.DataType)
		}
	}
	return list
}

// TestFeeds makes the inputs for two new tokens after two cached slots. The second row has one slot of padding.
func TestFeeds(t *testing.T) {
	w := &window{rows: 2, past: 2, fresh: 2, ids: []int64{5, 6, 7, 8}, left: []int{0, 1}, end: []int{4, 4},
		starts: []int{2, 2}}
	far := float64(-1e9)
	for _, c := range []struct {
		role     roles.Role
		dataType onnx.DataType
		name     string
		shape    string
		dims     []int64
		want     []float64
	}{
		{roles.Index, onnx.Int64, "input_ids", "b s", []int64{2, 2}, []float64{5, 6, 7, 8}},
		{roles.Index, onnx.Int32, "input_ids", "b s", []int64{2, 2}, []float64{5, 6, 7, 8}},
		{roles.Other, onnx.Int64, "token_type_ids", "b s", []int64{2, 2}, []float64{0, 0, 0, 0}},
		{roles.Position, onnx.Int64, "position_ids", "b s", []int64{2, 2}, []float64{2, 3, 1, 2}},
		{roles.Position, onnx.Int64, "position_ids", "1 s", []int64{1, 2}, []float64{2, 3}},
		{roles.Position, onnx.Int64, "cache_position", "s", []int64{2}, []float64{2, 3}},
		{roles.Position, onnx.Int64, "position_ids", "3 b s", []int64{3, 2, 2},
			[]float64{2, 3, 1, 2, 2, 3, 1, 2, 2, 3, 1, 2}},
		{roles.Mask, onnx.Int64, "attention_mask", "b t", []int64{2, 4}, []float64{1, 1, 1, 1, 0, 1, 1, 1}},
		{roles.Mask, onnx.Float, "attention_mask", "b t", []int64{2, 4}, []float64{1, 1, 1, 1, 0, 1, 1, 1}},
		{roles.Mask, onnx.Bool, "attention_mask", "b 6", []int64{2, 6}, []float64{1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0}},
		{roles.Mask, onnx.Bool, "mask", "b 1 s t", []int64{2, 1, 2, 4},
			[]float64{1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 0, 0, 1, 1, 1}},
		{roles.Mask, onnx.Float, "mask", "b 1 s t", []int64{2, 1, 2, 4},
			[]float64{0, 0, 0, far, 0, 0, 0, 0, far, 0, 0, far, far, 0, 0, 0}},
		{roles.Mask, onnx.Bool, "mask", "b 1 1 t", []int64{2, 1, 1, 4}, []float64{1, 1, 1, 1, 0, 1, 1, 1}},
		{roles.Total, onnx.Int32, "total_sequence_length", "", []int64{}, []float64{4}},
		{roles.Last, onnx.Int32, "seqlens_k", "b", []int64{2}, []float64{3, 3}},
		{roles.Last, onnx.Int32, "seqlens_k", "b 1", []int64{2, 1}, []float64{3, 3}},
		{roles.PastLength, onnx.Int32, "past_sequence_length", "1", []int64{1}, []float64{2}},
		{roles.LogitsToKeep, onnx.Int64, "num_logits_to_keep", "", []int64{}, []float64{1}},
		{roles.CacheFlag, onnx.Bool, "use_cache_branch", "1", []int64{1}, []float64{1}},
	} {
		x, err := w.tensor(port{c.name, c.dataType, dims(c.shape), c.role})
		if err != nil {
			t.Errorf("%s %s: %v", c.name, c.shape, err)
			continue
		}
		if got := numbers(t, x); !slices.Equal(got, c.want) || !slices.Equal(x.Dims, c.dims) {
			t.Errorf("%s %s[%s]: %v %v, want %v %v", c.name, c.dataType, c.shape, x.Dims, got, c.dims, c.want)
		}
	}
	for _, p := range []port{
		{"mask", onnx.Int64, dims("t"), roles.Mask},
		{"position_ids", onnx.Int64, dims("x b s"), roles.Position},
		{"attention_mask", onnx.String, dims("b t"), roles.Mask},
	} {
		if _, err := w.tensor(p); err == nil {
			t.Errorf("%s passes", p)
		}
	}
}

func TestRowOf(t *testing.T) {
	for _, c := range []struct {
		dims        []int64
		rows, fresh int
		row, slot   int
		want        int
	}{
		{[]int64{2, 3, 9}, 2, 3, 1, 2, 5}, {[]int64{2, 1, 9}, 2, 3, 1, 2, 1}, {[]int64{2, 9}, 2, 3, 1, 2, 1},
		{[]int64{6, 9}, 2, 3, 1, 0, 3}, {[]int64{3, 9}, 1, 3, 0, 2, 2}, {[]int64{9}, 1, 1, 0, 0, 0},
	} {
		if got, err := rowOf(c.dims, c.rows, c.fresh, c.row, c.slot); err != nil || got != c.want {
			t.Errorf("%v: row %d, %v, want %d", c.dims, got, err, c.want)
		}
	}
	if _, err := rowOf([]int64{4, 9}, 2, 3, 0, 0); err == nil {
		t.Error("logits of another shape pass")
	}
	if _, err := rowOf([]int64{2, 1, 9}, 2, 3, 0, 1); err == nil {
		t.Error("logits of padding pass")
	}
}

// TestCutter splits a text into three parts in every way and expects the same result.
func TestCutter(t *testing.T) {
	for _, c := range []struct {
		text, want string
		hit        bool
		stops      []string
	}{
		{"one END two", "one ", true, []string{"END"}},
		{"one EN two E", "one EN two E", false, []string{"END"}},
		{"aaab", "a", true, []string{"aab"}},
		{"a\n\nb END", "a", true, []string{"END", "\n\n"}},
		{"abcd", "", true, []string{"cd", "abc"}},
	} {
		for i := range len(c.text) + 1 {
			for j := i; j <= len(c.text); j++ {
				k := cutter{stops: c.stops}
				var got string
				hit := false
				for _, part := range []string{c.text[:i], c.text[i:j], c.text[j:]} {
					if !hit {
						var s string
						s, hit = k.add(part)
						got += s
					}
				}
				if !hit {
					got += k.flush()
				}
				if got != c.want || hit != c.hit {
					t.Errorf("%q cut at %d and %d: %q, %v", c.text, i, j, got, hit)
				}
			}
		}
	}
}

func TestGap(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		want   float32
	}{{[]float32{1, 4, 2.5}, 1.5}, {[]float32{3, 3}, 0}, {[]float32{-1, -5}, 4}, {[]float32{7, 1, 6}, 1}} {
		if got := gap(c.logits); got != c.want {
			t.Errorf("%v: %g, want %g", c.logits, got, c.want)
		}
	}
	if !math.IsInf(float64(gap([]float32{1})), 1) {
		t.Error("a single logit has a next one")
	}
}
