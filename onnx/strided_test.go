package onnx

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// places returns the offsets of all elements in index order.
func places(dims, strides []int64) []int64 {
	all := []int64{0}
	for axis, d := range dims {
		var next []int64
		for _, p := range all {
			for i := range d {
				next = append(next, p+i*strides[axis])
			}
		}
		all = next
	}
	return all
}

// TestRestride splits axes of transposed and stepped tensors, and compares the offsets with those of the original.
func TestRestride(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		row := []int64{1 + r.Int64N(3), 2 + r.Int64N(3), 4}
		dims, strides, split := make([]int64, 3), make([]int64, 3), []int64{}
		for i, p := range r.Perm(3) {
			by := 1 + r.Int64N(2)
			dims[i], strides[i] = (row[p]+by-1)/by, RowMajor(row)[p]*by
			if split = append(split, dims[i]); dims[i]%2 == 0 {
				split = append(split[:len(split)-1], 2, 1, dims[i]/2)
			}
		}
		got, ok := Restride(dims, strides, split)
		if !ok || !slices.Equal(places(split, got), places(dims, strides)) {
			t.Fatalf("%v at strides %v became %v at %v, %v", dims, strides, split, got, ok)
		}
	}
	if _, ok := Restride([]int64{3, 2}, []int64{1, 3}, []int64{6}); ok {
		t.Error("a transposed matrix lies in one row")
	}
}

func TestExpand(t *testing.T) {
	rows, ok := InRow([]int64{1, 3}).Expand([]int64{2, 2, 3})
	if got := places(rows.Dims, rows.Strides); !ok || !slices.Equal(got, []int64{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}) {
		t.Errorf("repeated: %v, %v", got, ok)
	}
	if _, ok := InRow([]int64{2, 3}).Expand([]int64{4, 3}); ok {
		t.Error("two rows were repeated to four")
	}
}
