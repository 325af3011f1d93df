package tensor

import "slices"

// BroadcastShape returns the shape that all the shapes broadcast to, by numpy's rules. It fails if they do not fit.
func BroadcastShape(shapes ...[]int) []int {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	out := slices.Repeat([]int{1}, rank)
	for _, s := range shapes {
		off := rank - len(s)
		for i, d := range s {
			switch o := &out[off+i]; {
			case *o == d || d == 1:
			case *o == 1:
				*o = d
			default:
				Fail("shapes %v do not broadcast", shapes)
			}
		}
	}
	Check(CheckShape(out))
	return out
}

// BroadcastsTo reports whether a tensor of the shape can be repeated to fill out.
func BroadcastsTo(shape, out []int) bool {
	lead := len(out) - len(shape)
	for i, d := range shape {
		if lead < 0 || d != 1 && d != out[lead+i] {
			return false
		}
	}
	return true
}

// broadcastStrides returns the strides of shape along out: 0 for repeated dimensions.
func broadcastStrides(shape, out []int) []int {
	st := make([]int, len(out))
	off, n := len(out)-len(shape), 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 {
			st[off+i] = n
		}
		n *= shape[i]
	}
	return st
}

// isSuffix reports whether shape, without leading ones, is the end of out, so that its elements repeat as a block.
func isSuffix(shape, out []int) bool {
	for len(shape) > 0 && shape[0] == 1 {
		shape = shape[1:]
	}
	return len(shape) <= len(out) && slices.Equal(shape, out[len(out)-len(shape):])
}

// ZipWith applies f to the elements of a and b broadcast to the shape out.
func ZipWith[A, B, R any](a []A, as []int, b []B, bs []int, out []int, f func(A, B) R) []R {
	r := make([]R, Size(out))
	switch {
	case len(r) == 0:
	case len(a) == len(r) && len(b) == len(r):
		for i, x := range a {
			r[i] = f(x, b[i])
		}
	case len(a) == len(r) && len(b) == 1:
		y := b[0]
		for i, x := range a {
			r[i] = f(x, y)
		}
	case len(b) == len(r) && len(a) == 1:
		x := a[0]
		for i, y := range b {
			r[i] = f(x, y)
		}
	case len(a) == len(r) && isSuffix(bs, out):
		for i := 0; i < len(r); i += len(b) {
			for k, y := range b {
				r[i+k] = f(a[i+k], y)
			}
		}
	default:
		Walk2(out, broadcastStrides(as, out), broadcastStrides(bs, out), func(o, i, j, n, si, sj int) {
			for k := range n {
				r[o+k] = f(a[i+k*si], b[j+k*sj])
			}
		})
	}
	return r
}

// A line computes r[k] from a[k*sa] and b[k*sb].
type Line func(r, a, b []float64, sa, sb int)

// AddLine is the Line of x + y.
func AddLine(r, a, b []float64, sa, sb int) {
	for k, i, j := 0, 0, 0; k < len(r); k, i, j = k+1, i+sa, j+sb {
		r[k] = a[i] + b[j]
	}
}

// SubtractLine is the Line of x - y.
func SubtractLine(r, a, b []float64, sa, sb int) {
	for k, i, j := 0, 0, 0; k < len(r); k, i, j = k+1, i+sa, j+sb {
		r[k] = a[i] - b[j]
	}
}

// MultiplyLine is the Line of x·y.
func MultiplyLine(r, a, b []float64, sa, sb int) {
	for k, i, j := 0, 0, 0; k < len(r); k, i, j = k+1, i+sa, j+sb {
		r[k] = a[i] * b[j]
	}
}

// DivideLine is the Line of x / y.
func DivideLine(r, a, b []float64, sa, sb int) {
	for k, i, j := 0, 0, 0; k < len(r); k, i, j = k+1, i+sa, j+sb {
		r[k] = a[i] / b[j]
	}
}

// ZipLines is ZipWith for the most frequent ops, without a call for each element.
func ZipLines(a []float64, as []int, b []float64, bs, out []int, f Line) []float64 {
	r := make([]float64, Size(out))
	switch {
	case len(r) == 0:
	case len(a) == len(r) && len(b) == len(r):
		f(r, a, b, 1, 1)
	case len(a) == len(r) && len(b) == 1:
		f(r, a, b, 1, 0)
	case len(b) == len(r) && len(a) == 1:
		f(r, a, b, 0, 1)
	default:
		Walk2(out, broadcastStrides(as, out), broadcastStrides(bs, out), func(o, i, j, n, si, sj int) {
			f(r[o:o+n], a[i:], b[j:], si, sj)
		})
	}
	return r
}

// Walk2 calls f for each row (last dimension) of the shape out, with the offset of the row, the two operands' offsets,
// its length and the operands' strides along it.
func Walk2(out, sa, sb []int, f func(o, i, j, n, si, sj int)) {
	rank := len(out)
	if rank == 0 {
		f(0, 0, 0, 1, 0, 0)
		return
	}
	n := out[rank-1]
	rows := Size(out[:rank-1])
	idx := make([]int, rank-1)
	i, j := 0, 0
	for row := range rows {
		f(row*n, i, j, n, sa[rank-1], sb[rank-1])
		for d := rank - 2; d >= 0; d-- {
			idx[d]++
			i += sa[d]
			j += sb[d]
			if idx[d] < out[d] {
				break
			}
			idx[d] = 0
			i -= sa[d] * out[d]
			j -= sb[d] * out[d]
		}
	}
}

// Expand repeats the elements of a to fill the shape out.
func Expand[T any](a []T, as, out []int) []T {
	if len(a) == Size(out) {
		return a
	}
	return ReadStrided(a, out, broadcastStrides(as, out), 0)
}

// ExpandTo broadcasts a tensor to the shape out, which it must fit.
func ExpandTo(t *Tensor, out []int) *Tensor {
	return &Tensor{DataType: t.DataType, Shape: out, F: Expand(t.F, t.Shape, out), I: Expand(t.I, t.Shape, out),
		S: Expand(t.S, t.Shape, out)}
}
