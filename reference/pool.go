package reference

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var poolOps = map[string]opDef{
	"AveragePool": arith(1, opAveragePool),
	"MaxPool":     exact(1, opMaxPool),
}

// window is a position of a pooling kernel: the input elements for one output element.
type window struct {
	row    int     // of batch and channels
	taps   []int   // their offsets among the spatial elements
	places [][]int // their indices
	padded int     // the number of taps including those in the padding
}

// pool makes the output of a pooling op, one element after the other.
func (c *call) pool(each func(i int, w *window)) (shape []int) {
	x := c.in[0]
	n := x.Rank() - 2
	kernel, ok := c.ints("kernel_shape")
	if n < 1 || !ok || len(kernel) != n {
		fail("a kernel of %v does not fit %v", kernel, x.Shape)
	}
	taps := toInts(kernel)
	stride, dilation := c.perAxis("strides", n), c.perAxis("dilations", n)
	before, after, spatial := c.convShape(x.Shape[2:], taps, stride, dilation)
	from, out, step := onnx.RowMajor(x.Shape[2:]), onnx.RowMajor(spatial), onnx.RowMajor(taps)
	rows := x.Shape[0] * x.Shape[1]
	for row := range rows {
		for p := range size(spatial) {
			w := &window{row: row}
			for t := range size(taps) {
				at, inside, padded := 0, true, true
				index := make([]int, n)
				for d := range n {
					i := p/out[d]%spatial[d]*stride[d] - before[d] + t/step[d]%taps[d]*dilation[d]
					inside = inside && i >= 0 && i < x.Shape[2+d]
					padded = padded && i < x.Shape[2+d]+after[d]
					at += i * from[d]
					index[d] = i
				}
				if padded {
					w.padded++
				}
				if inside {
					w.taps, w.places = append(w.taps, at), append(w.places, index)
				}
			}
			each(row*size(spatial)+p, w)
		}
	}
	return append([]int{x.Shape[0], x.Shape[1]}, spatial...)
}

func opAveragePool(c *call) []*Tensor {
	x := c.floats(0)
	in, padding := size(x.Shape[min(2, x.Rank()):]), c.int("count_include_pad", 0) != 0
	var y []float64
	shape := c.pool(func(_ int, w *window) {
		sum := 0.0
		for _, at := range w.taps {
			sum += x.F[w.row*in+at]
		}
		y = append(y, sum/float64(pick(padding, w.padded, len(w.taps))))
	})
	return one(NewFloats(x.DataType, shape, y))
}

func opMaxPool(c *call) []*Tensor {
	x := c.in[0]
	in, columns := size(x.Shape[min(2, x.Rank()):]), c.int("storage_order", 0) != 0
	var chosen []int
	var places []int64
	shape := c.pool(func(_ int, w *window) {
		best := -1
		for i, at := range w.taps {
			if best < 0 || x.floatAt(w.row*in+at) > x.floatAt(w.row*in+w.taps[best]) {
				best = i
			}
		}
		if best < 0 {
			fail("a window has no element")
		}
		chosen = append(chosen, w.row*in+w.taps[best])
		place := w.taps[best]
		if columns {
			place = 0
			for d, stride := 0, 1; d < len(w.places[best]); d++ {
				place += w.places[best][d] * stride
				stride *= x.Shape[2+d]
			}
		}
		places = append(places, int64(w.row*in+place))
	})
	for _, i := range chosen {
		if x.F != nil && math.IsNaN(x.F[i]) {
			fail("the input has NaN")
		}
	}
	return []*Tensor{x.take(shape, chosen), NewInts(onnx.Int64, shape, places)}
}
