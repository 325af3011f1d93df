package onnx

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// list returns the places of all elements in the order of the index.
func (s Strided) list() []int64 {
	places := []int64{s.Offset}
	for axis, d := range s.Dims {
		var next []int64
		for _, p := range places {
			for i := range d {
				next = append(next, p+i*s.Strides[axis])
			}
		}
		places = next
	}
	return places
}

// TestStrided moves elements at random, and holds the places against those of the tensor before.
func TestStrided(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		s := InRow([]int64{1 + r.Int64N(3), 2 + r.Int64N(3), 4})
		for range 3 {
			before, axis := s.list(), r.IntN(len(s.Dims))
			row := InRow(s.Dims)
			var moved, want Strided // want counts the elements before
			ok := true
			switch r.IntN(3) {
			case 0:
				perm := make([]int64, len(s.Dims))
				for i, p := range r.Perm(len(perm)) {
					perm[i] = int64(p)
				}
				moved, ok = s.Transpose(perm)
				want, _ = row.Transpose(perm)
			case 1:
				from, n, by := r.Int64N(s.Dims[axis]), 1+r.Int64N(3), r.Int64N(5)-2
				moved, ok = s.Slice(axis, from, n, by)
				if last := from + (n-1)*by; ok != (last >= 0 && last < s.Dims[axis]) {
					t.Fatalf("%v: %d places of axis %d from %d in steps of %d: %v", s.Dims, n, axis, from, by, ok)
				}
				want, _ = row.Slice(axis, from, n, by)
			default:
				dims := []int64{s.Dims[0], 1}
				for _, d := range s.Dims[1:] {
					if d%2 == 0 {
						dims = append(dims, 2, d/2)
					} else {
						dims = append(dims, d)
					}
				}
				if moved, ok = s.Reshape(dims); !ok {
					t.Fatalf("%+v: no strides for %v", s, dims)
				}
				want = InRow(dims)
			}
			if !ok {
				continue
			}
			var places []int64
			for _, i := range want.list() {
				places = append(places, before[i])
			}
			if got := moved.list(); !slices.Equal(got, places) || !slices.Equal(moved.Dims, want.Dims) {
				t.Fatalf("%+v became %+v: places %v, want %v", s, moved, got, places)
			}
			s = moved
		}
	}
	turned, _ := InRow([]int64{2, 3}).Transpose([]int64{1, 0})
	if _, ok := turned.Reshape([]int64{6}); ok {
		t.Error("a transposed matrix lies in one row")
	}
	if _, ok := InRow([]int64{2, 3}).Transpose([]int64{0, 0}); ok {
		t.Error("a transposition that takes an axis twice")
	}
	rows, _ := InRow([]int64{1, 3}).Expand([]int64{2, 2, 3})
	if got := rows.list(); !slices.Equal(got, []int64{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}) {
		t.Errorf("repeated: %v", got)
	}
}
