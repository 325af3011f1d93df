package onnx

import "slices"

// Strided selects elements of a list for a tensor of these dimensions: the one at index i is number Strides·i.
type Strided struct{ Dims, Strides []int64 }

// InRow returns the first elements of a list in row-major order.
func InRow(dims []int64) Strided { return Strided{Dims: slices.Clone(dims), Strides: RowMajor(dims)} }

// RowMajor returns the strides of elements in row-major order.
func RowMajor[T int | int64](dims []T) []T {
	strides := make([]T, len(dims))
	n := T(1)
	for i := len(dims) - 1; i >= 0; i-- {
		strides[i] = n
		n *= dims[i]
	}
	return strides
}

// Expand repeats axes of size 1, and adds leading axes, to get these dimensions. It returns false if that is not
// possible.
func (s Strided) Expand(dims []int64) (Strided, bool) {
	lead := len(dims) - len(s.Dims)
	if lead < 0 {
		return s, false
	}
	r := Strided{slices.Clone(dims), make([]int64, len(dims))}
	for i, d := range s.Dims {
		switch at := i + lead; {
		case d == dims[at] || dims[at] == 1:
			r.Dims[at], r.Strides[at] = d, s.Strides[i]
		case d != 1:
			return s, false
		}
	}
	return r, true
}

// Restride returns strides for the same elements, at least one, in other dimensions. It returns false if there are no
// such strides.
func Restride[T int | int64](dims, strides, want []T) ([]T, bool) {
	out := make([]T, len(want))
	i, k := 0, 0
	for i < len(dims) || k < len(want) {
		// the fewest dimensions on both sides with equally many elements
		i0, k0, a, b := i, k, T(1), T(1)
		for first := true; first || a != b; first = false {
			switch {
			case a <= b && i < len(dims):
				a *= dims[i]
				i++
			case k < len(want):
				b *= want[k]
				k++
			default:
				return nil, false
			}
			if a == 1 && b == 1 { // dimensions of 1 do not matter
				break
			}
		}
		step, outer := T(1), -1
		for j := i0; j < i; j++ { // the source dimensions must be nested
			if dims[j] == 1 {
				continue
			}
			if outer >= 0 && strides[outer] != strides[j]*dims[j] {
				return nil, false
			}
			step, outer = strides[j], j
		}
		for j := k - 1; j >= k0; j-- {
			out[j] = step
			step *= want[j]
		}
	}
	return out, true
}
