package sites

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/patterns/shorten"
)

// lengths are other numbers of queries and keys.
func lengths(name rune) int64 { return map[rune]int64{'s': 7, 'l': 9}[name] }

func at(dims []shorten.Dim) (list []int64) {
	for _, d := range dims {
		list = append(list, d.At(lengths))
	}
	return list
}

// TestShorterBiases: the dimensions of a bias follow the numbers of queries and keys, and keep all other sizes.
func TestShorterBiases(t *testing.T) {
	for _, c := range []struct {
		axes          attention.Axes
		shape         []int64
		queries, keys int64
		want          string // "" if it does not fit
	}{
		{"b n s l", []int64{1, 2, 200, 300}, 200, 300, "[1 2 7 9]"},
		{"b n s l", []int64{1, 1, 1, 300}, 200, 300, "[1 1 1 9]"},
		{"b n s l", []int64{200, 300}, 200, 300, "[7 9]"},
		{"b n s l", []int64{300}, 200, 300, "[9]"},
		{"b n s l", []int64{2, 1, 1}, 200, 300, "[2 1 1]"},
		{"b n s l", []int64{1, 1, 200, 200}, 200, 200, "[1 1 7 7]"},
		{"b n s l", []int64{1, 1, 200, 299}, 200, 300, ""},
		{"b n s l", []int64{1, 1, 300, 300}, 200, 300, ""},
		{"b n s l", []int64{1, 1, 1, 200, 300}, 200, 300, ""},
		{"bn s l", []int64{4, 200, 300}, 200, 300, "[4 7 9]"},
		{"bn s l", []int64{1, 2, 200, 300}, 200, 300, "[1 2 7 9]"},
	} {
		dims, err := onScores(&attention.Reading{BiasAxes: c.axes}, c.shape, c.queries, c.keys)
		if (err == nil) != (c.want != "") || err == nil && fmt.Sprint(at(dims)) != c.want {
			t.Errorf("%v on scores %q of %d and %d: %v, %v, want %s", c.shape, c.axes, c.queries, c.keys, at(dims), err,
				c.want)
		}
	}
}

// TestShorterHeads: the dimensions of queries, keys and values follow their axes; a shape that does not fit is refused.
func TestShorterHeads(t *testing.T) {
	for _, c := range []struct {
		axes  attention.Axes
		shape []int64
		want  string
	}{
		{"b n s h", []int64{3, 2, 200, 8}, "[3 2 7 8]"},
		{"b s n h", []int64{3, 200, 2, 8}, "[3 7 2 8]"},
		{"b s nh", []int64{3, 200, 16}, "[3 7 16]"},
		{"bn s h", []int64{6, 200, 8}, "[6 7 8]"},
		{"b n s h", []int64{3, 2, 200}, ""},
		{"b n s h", []int64{3, 4, 200, 8}, ""},
		{"b n s h", []int64{3, 2, 100, 8}, ""},
		{"b n s h", []int64{3, 2, 200, 9}, ""},
		{"bn s h", []int64{5, 200, 8}, ""},
	} {
		factors := map[rune]shorten.Factor{'s': {Name: 's', Size: 200}, 'n': {Size: 2}, 'h': {Size: 8}}
		dims, err := dimsOf(c.axes, c.shape, factors)
		if (err == nil) != (c.want != "") || err == nil && fmt.Sprint(at(dims)) != c.want {
			t.Errorf("%v with the axes %q: %v, %v, want %s", c.shape, c.axes, at(dims), err, c.want)
		}
	}
	q, k := &onnx.Value{Name: "q"}, &onnx.Value{Name: "k"}
	shapes := map[*onnx.Value][]int64{q: {1, 2, 200, 8}, k: {1, 300, 2, 8}}
	shapeOf := func(v *onnx.Value) ([]int64, error) {
		if shapes[v] == nil {
			return nil, errors.New("unknown")
		}
		return shapes[v], nil
	}
	queries, keys, err := lengthsOf(&attention.Reading{Q: q, K: k, QAxes: "b n s h", KAxes: "b s n h"}, shapeOf)
	if queries != 200 || keys != 300 || err != nil {
		t.Errorf("%d queries, %d keys, %v", queries, keys, err)
	}
	shapes[k] = nil
	if _, _, err := lengthsOf(&attention.Reading{Q: q, K: k, QAxes: "b n s h", KAxes: "b s n h"}, shapeOf); err == nil {
		t.Error("keys of an unknown shape have a length")
	}
}
