package reference

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
)

var quantOps = map[string]opDef{
	"QuantizeLinear":        exact(2, opQuantize),
	"DequantizeLinear":      arith(2, opDequantize),
	"DynamicQuantizeLinear": exact(1, opDynamicQuantize),
	"MatMulInteger":         arith(2, opMatMulInteger),
	"QLinearMatMul":         exact(8, opQLinearMatMul),
}

// perElement returns, for each element of x, the index of its scale: one for all, one per index along the axis, or one
// per block along it.
func (c *call) perElement(x, scale *Tensor) []int {
	index := make([]int, x.Len())
	if scale.Len() == 1 && scale.Rank() <= 1 {
		return index
	}
	axis, block := c.axis(c.int("axis", 1), x.Rank()), int(c.int("block_size", 0))
	n, inner := x.Shape[axis], size(x.Shape[axis+1:])
	if block == 0 {
		if scale.Rank() != 1 || scale.Len() != n {
			fail("a scale of %v does not fit axis %d of %v", scale.Shape, axis, x.Shape)
		}
		for i := range index {
			index[i] = i / inner % n
		}
		return index
	}
	want := slices.Clone(x.Shape)
	want[axis] = (n + block - 1) / max(block, 1)
	if block < 0 || !slices.Equal(want, scale.Shape) {
		fail("a scale of %v does not fit %v in blocks of %d along axis %d", scale.Shape, x.Shape, block, axis)
	}
	for i := range index {
		index[i] = (i/(inner*n)*want[axis]+i/inner%n/block)*inner + i%inner
	}
	return index
}

// zeroPoint reads the optional zero point, which has the scale's shape.
func (c *call) zeroPoint(i int, scale *Tensor) *Tensor {
	z := c.arg(i)
	if z != nil && z.Len() != scale.Len() {
		fail("a zero point of %v does not fit a scale of %v", z.Shape, scale.Shape)
	}
	return z
}

// opQuantize is saturate(round(x/scale) + zero point), to nearest even, with x/scale in the scale's type or precision.
func opQuantize(c *call) []*Tensor {
	x, scale := c.in[0], c.floats(1)
	to := onnx.DataType(c.int("output_dtype", 0))
	zero := c.zeroPoint(2, scale)
	if zero != nil {
		to = zero.DataType
	} else if to == onnx.Undefined {
		to = onnx.Uint8
	}
	index := c.perElement(x, scale)
	saturate := c.int("saturate", 1) != 0
	precision := onnx.DataType(c.int("precision", 0))
	q := make([]float64, x.Len())
	for i := range q {
		q[i] = x.floatAt(i) / scale.F[index[i]]
		if precision != onnx.Undefined {
			q[i] = c.roundOne(precision, q[i])
		} else {
			q[i] = c.roundOne(scale.DataType, q[i])
		}
	}
	r := &Tensor{DataType: to, Shape: x.Shape}
	if f := elements.FormatOf(to); f != nil {
		r.F = mapSlice(q, func(v float64) float64 { return f.Round(v, saturate) })
		return one(r)
	}
	if !isInt(to) {
		fail("cannot quantize to %s", to)
	}
	lo, hi := elements.Range(to)
	r.I = make([]int64, len(q))
	for i, v := range q {
		z := int64(0)
		if zero != nil {
			z = zero.I[index[i]]
		}
		r.I[i] = clampRound(v, z, lo, hi)
	}
	return one(r)
}

func clampRound(v float64, zero, lo, hi int64) int64 {
	return truncate(math.Min(math.Max(math.RoundToEven(v)+float64(zero), float64(lo)), float64(hi)))
}

// opDequantize is (x - zero point)*scale, of the scale's type or output_dtype.
func opDequantize(c *call) []*Tensor {
	x, scale := c.in[0], c.floats(1)
	zero := c.zeroPoint(2, scale)
	index := c.perElement(x, scale)
	to := onnx.DataType(c.int("output_dtype", int64(scale.DataType)))
	if to == onnx.Undefined {
		to = scale.DataType
	}
	r := newFloats(to, x.Shape)
	for i := range r.F {
		v := x.floatAt(i)
		if zero != nil {
			v -= zero.floatAt(index[i])
		}
		r.F[i] = v * scale.F[index[i]]
	}
	return one(r)
}

// opDynamicQuantize quantizes to uint8 over the range of the input, extended to contain zero.
func opDynamicQuantize(c *call) []*Tensor {
	x := c.floats(0)
	lo, hi := 0.0, 0.0
	for _, v := range x.F {
		lo, hi = math.Min(lo, v), math.Max(hi, v)
	}
	scale := c.roundOne(onnx.Float, (hi-lo)/255)
	zero := int64(0)
	if scale != 0 {
		zero = clampRound(c.roundOne(onnx.Float, -lo/scale), 0, 0, 255)
	}
	r := newInts(onnx.Uint8, x.Shape)
	for i, v := range x.F {
		if scale != 0 {
			v = c.roundOne(onnx.Float, v/scale)
		}
		r.I[i] = clampRound(v, zero, 0, 255)
	}
	return []*Tensor{r, scalarF(onnx.Float, scale), NewInts(onnx.Uint8, []int{}, []int64{zero})}
}

// shifted returns an integer matrix as int32 minus its zero point, which is one number, one per row (left side) or one
// per column (right side).
func (c *call) shifted(i, zero int, left bool) *Tensor {
	x := c.in[i]
	v, _ := c.integers(i)
	z, ok := c.integers(zero)
	if !ok {
		return NewInts(onnx.Int32, x.Shape, v)
	}
	shape := c.in[zero].Shape
	if left && len(z) > 1 && len(shape) == 1 {
		shape = []int{len(z), 1}
	}
	if !broadcastsTo(shape, x.Shape) {
		fail("a zero point of %v does not fit %v", c.in[zero].Shape, x.Shape)
	}
	return NewInts(onnx.Int32, x.Shape, zipWith(v, x.Shape, z, shape, x.Shape, subtract))
}

// opMatMulInteger multiplies 8-bit matrices minus their zero points, in int32.
func opMatMulInteger(c *call) []*Tensor {
	return one(matmul(c.shifted(0, 2, true), c.shifted(1, 3, false)))
}

// opQLinearMatMul multiplies quantized matrices and quantizes the product.
func opQLinearMatMul(c *call) []*Tensor {
	a, b := c.shifted(0, 2, true), c.shifted(3, 5, false)
	as, bs, ys := c.number(1, 1), c.number(4, 1), c.number(6, 1)
	zero := c.integer(7, 0)
	p := matmul(a, b)
	to := c.in[7].DataType
	lo, hi := elements.Range(to)
	return one(NewInts(to, p.Shape,
		mapSlice(p.I, func(v int64) int64 { return clampRound(float64(v)*as*bs/ys, zero, lo, hi) })))
}
