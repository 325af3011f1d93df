package tensor

import (
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// PanelElements is the number of elements of a lazy matrix read at a time.
const PanelElements = 1 << 16

// panelBuffers keeps panels: a mixture of experts multiplies with many matrices, one after the other.
var panelBuffers = sync.Pool{New: func() any { return new([]float64) }}

// product is one multiplication with a matrix of a lazy tensor: the starts of the dense matrix and the result.
type product struct{ dense, out int }

// matrix is a matrix in a source, of p rows and q columns.
type matrix struct {
	src                reader
	offset, rows, cols int // rows and cols are the strides
	p, q               int
}

// MatMulLazy computes the batched product of a and b, one of which is lazy, into out: of matrices m×k and k×n.
func MatMulLazy(mul GemmFunc, a, b *Tensor, as, bs, batch []int, m, k, n int, out []float64) error {
	if len(out) == 0 {
		return nil
	}
	left := a.lazy != nil
	if left && b.lazy != nil { // the smaller one becomes dense
		var err error
		if a.Len() < b.Len() {
			left = false
			a, err = a.Dense()
		} else {
			b, err = b.Dense()
		}
		if err != nil {
			return err
		}
	}
	lazy, shape, other := b, bs, a
	if left {
		lazy, shape, other = a, as, b
	}
	v := lazy.lazy.reshape(shape)
	if len(v.lead) != len(shape)-2 { // its blocks are not matrices
		v = fresh(shape, v)
	}
	if len(v.lead) != len(shape)-2 {
		d, err := lazy.Dense()
		if err != nil {
			return err
		}
		v = &view{lead: shape[:len(shape)-2], inner: shape[len(shape)-2:]}
		each := Size(v.inner)
		for i := range Size(v.lead) {
			v.blocks = append(v.blocks, block{&dense{d.F}, i * each, onnx.RowMajor(v.inner)})
		}
	}
	groups := map[matrix][]product{}
	var order []matrix
	sa, sb := broadcastStrides(as[:len(as)-2], batch), broadcastStrides(bs[:len(bs)-2], batch)
	Walk2(batch, sa, sb, func(o, i, j, count, si, sj int) {
		for x := range count {
			at, d := j+x*sj, (i+x*si)*m*k
			if left {
				at, d = i+x*si, (j+x*sj)*k*n
			}
			b := v.blocks[at]
			key := matrix{b.src, b.offset, b.strides[0], b.strides[1], v.inner[0], v.inner[1]}
			if groups[key] == nil {
				order = append(order, key)
			}
			groups[key] = append(groups[key], product{d, (o + x) * m * n})
		}
	})
	for _, key := range order {
		if err := key.multiply(mul, left, groups[key], other.F, m, k, n, out); err != nil {
			return err
		}
	}
	return nil
}

// multiply multiplies one matrix with several others, reading it once.
func (x matrix) multiply(mul GemmFunc, left bool, list []product, other []float64, m, k, n int,
	out []float64) error {
	// of a column: the row times the transposed matrix, which has the same numbers in the same places
	if left && n == 1 {
		x.rows, x.cols, x.p, x.q = x.cols, x.rows, x.q, x.p
		left, m, n = false, 1, m
	}
	return x.panels(func(byRows bool, from, count int, panel []float64) {
		for _, p := range list {
			d, r := other[p.dense:], out[p.out:]
			switch {
			case !left && byRows:
				mul(false, false, m, n, count, d[from:], k, panel, n, 1, r, n)
			case !left:
				mul(false, true, m, count, k, d, k, panel, k, 1, r[from:], n)
			case byRows:
				mul(false, false, count, n, k, panel, k, d, n, 1, r[from*n:], n)
			default:
				mul(true, false, m, n, count, panel, m, d[from*n:], n, 1, r, n)
			}
		}
	})
}

// panels reads the matrix, some rows or some columns at a time, whichever are contiguous. They are the rows of the
// panel.
func (x matrix) panels(use func(byRows bool, from, count int, panel []float64)) error {
	byRows := x.cols == 1 || x.rows != 1
	lines, length, next, step := x.p, x.q, x.rows, x.cols
	if !byRows {
		lines, length, next, step = x.q, x.p, x.cols, x.rows
	}
	if lines == 0 || length == 0 {
		return nil
	}
	count := min(max(1, PanelElements/length), lines)
	buffer := panelBuffers.Get().(*[]float64)
	defer panelBuffers.Put(buffer)
	panel := slices.Grow((*buffer)[:0], count*length)[:count*length]
	*buffer = panel
	for from := 0; from < lines; from += count {
		count := min(count, lines-from)
		for i := range count {
			if err := x.src.read(panel[i*length:(i+1)*length], x.offset+(from+i)*next, step); err != nil {
				return err
			}
		}
		use(byRows, from, count, panel[:count*length])
	}
	return nil
}
