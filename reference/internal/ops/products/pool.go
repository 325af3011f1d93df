package products

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var poolOps = map[string]op.Def{
	"AveragePool": op.Arith(1, opAveragePool),
	"MaxPool":     op.Exact(1, opMaxPool),
}

// window is a position of a pooling kernel: the input elements for one output element.
type window struct {
	row    int     // of batch and channels
	taps   []int   // their offsets among the spatial elements
	places [][]int // their indices
	padded int     // the number of taps including those in the padding
}

// pool makes the output of a pooling op, one element after the other.
func pool(c *op.Call, each func(i int, w *window)) (shape []int) {
	x := c.In[0]
	n := x.Rank() - 2
	kernel, ok := c.Ints("kernel_shape")
	if n < 1 || !ok || len(kernel) != n {
		tensor.Fail("a kernel of %v does not fit %v", kernel, x.Shape)
	}
	taps := tensor.ToInts(kernel)
	stride, dilation := perAxis(c, "strides", n), perAxis(c, "dilations", n)
	before, after, spatial := convShape(c, x.Shape[2:], taps, stride, dilation)
	from, out, step := onnx.RowMajor(x.Shape[2:]), onnx.RowMajor(spatial), onnx.RowMajor(taps)
	rows := x.Shape[0] * x.Shape[1]
	for row := range rows {
		for p := range tensor.Size(spatial) {
			w := &window{row: row}
			for t := range tensor.Size(taps) {
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
			each(row*tensor.Size(spatial)+p, w)
		}
	}
	return append([]int{x.Shape[0], x.Shape[1]}, spatial...)
}

func opAveragePool(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	in, padding := tensor.Size(x.Shape[min(2, x.Rank()):]), c.Int("count_include_pad", 0) != 0
	var y []float64
	shape := pool(c, func(_ int, w *window) {
		sum := 0.0
		for _, at := range w.taps {
			sum += x.F[w.row*in+at]
		}
		y = append(y, sum/float64(tensor.Pick(padding, w.padded, len(w.taps))))
	})
	return op.One(tensor.NewFloats(x.DataType, shape, y))
}

func opMaxPool(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	in, columns := tensor.Size(x.Shape[min(2, x.Rank()):]), c.Int("storage_order", 0) != 0
	var chosen []int
	var places []int64
	shape := pool(c, func(_ int, w *window) {
		best := -1
		for i, at := range w.taps {
			if best < 0 || tensor.FloatAt(x, w.row*in+at) > tensor.FloatAt(x, w.row*in+w.taps[best]) {
				best = i
			}
		}
		if best < 0 {
			tensor.Fail("a window has no element")
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
			tensor.Fail("the input has NaN")
		}
	}
	return []*tensor.Tensor{tensor.Take(x, shape, chosen), tensor.NewInts(onnx.Int64, shape, places)}
}
