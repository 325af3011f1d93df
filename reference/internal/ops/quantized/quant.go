package quantized

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var quantOps = map[string]op.Def{
	"QuantizeLinear":        op.Exact(2, opQuantize),
	"DequantizeLinear":      op.Arith(2, opDequantize),
	"DynamicQuantizeLinear": op.Exact(1, opDynamicQuantize),
	"MatMulInteger":         op.Arith(2, opMatMulInteger),
	"QLinearMatMul":         op.Exact(8, opQLinearMatMul),
}

// perElement returns, for each element of x, the index of its scale: one for all, one per index along the axis, or one
// per block along it.
func perElement(c *op.Call, x, scale *tensor.Tensor) []int {
	index := make([]int, x.Len())
	if scale.Len() == 1 && scale.Rank() <= 1 {
		return index
	}
	axis, block := c.Axis(c.Int("axis", 1), x.Rank()), int(c.Int("block_size", 0))
	n, inner := x.Shape[axis], tensor.Size(x.Shape[axis+1:])
	if block == 0 {
		if scale.Rank() != 1 || scale.Len() != n {
			tensor.Fail("a scale of %v does not fit axis %d of %v", scale.Shape, axis, x.Shape)
		}
		for i := range index {
			index[i] = i / inner % n
		}
		return index
	}
	want := slices.Clone(x.Shape)
	want[axis] = (n + block - 1) / max(block, 1)
	if block < 0 || !slices.Equal(want, scale.Shape) {
		tensor.Fail("a scale of %v does not fit %v in blocks of %d along axis %d", scale.Shape, x.Shape, block, axis)
	}
	for i := range index {
		index[i] = (i/(inner*n)*want[axis]+i/inner%n/block)*inner + i%inner
	}
	return index
}

// zeroPoint reads the optional zero point, which has the scale's shape.
func zeroPoint(c *op.Call, i int, scale *tensor.Tensor) *tensor.Tensor {
	z := c.Arg(i)
	if z != nil && z.Len() != scale.Len() {
		tensor.Fail("a zero point of %v does not fit a scale of %v", z.Shape, scale.Shape)
	}
	return z
}

// opQuantize is saturate(round(x/scale) + zero point), to nearest even, with x/scale in the scale's type or precision.
func opQuantize(c *op.Call) []*tensor.Tensor {
	x, scale := c.In[0], c.Floats(1)
	to := onnx.DataType(c.Int("output_dtype", 0))
	zero := zeroPoint(c, 2, scale)
	if zero != nil {
		to = zero.DataType
	} else if to == onnx.Undefined {
		to = onnx.Uint8
	}
	index := perElement(c, x, scale)
	saturate := c.Int("saturate", 1) != 0
	precision := onnx.DataType(c.Int("precision", 0))
	q := make([]float64, x.Len())
	for i := range q {
		q[i] = tensor.FloatAt(x, i) / scale.F[index[i]]
		if precision != onnx.Undefined {
			q[i] = c.RoundOne(precision, q[i])
		} else {
			q[i] = c.RoundOne(scale.DataType, q[i])
		}
	}
	r := &tensor.Tensor{DataType: to, Shape: x.Shape}
	if f := elements.FormatOf(to); f != nil {
		r.F = tensor.MapSlice(q, func(v float64) float64 { return f.Round(v, saturate) })
		return op.One(r)
	}
	if !tensor.IsIntType(to) {
		tensor.Fail("cannot quantize to %s", to)
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
	return op.One(r)
}

func clampRound(v float64, zero, lo, hi int64) int64 {
	return tensor.Truncate(math.Min(math.Max(math.RoundToEven(v)+float64(zero), float64(lo)), float64(hi)))
}

// opDequantize is (x - zero point)*scale, of the scale's type or output_dtype.
func opDequantize(c *op.Call) []*tensor.Tensor {
	x, scale := c.In[0], c.Floats(1)
	zero := zeroPoint(c, 2, scale)
	index := perElement(c, x, scale)
	to := onnx.DataType(c.Int("output_dtype", int64(scale.DataType)))
	if to == onnx.Undefined {
		to = scale.DataType
	}
	r := tensor.ZeroFloats(to, x.Shape)
	for i := range r.F {
		v := tensor.FloatAt(x, i)
		if zero != nil {
			v -= tensor.FloatAt(zero, index[i])
		}
		r.F[i] = v * scale.F[index[i]]
	}
	return op.One(r)
}

// opDynamicQuantize quantizes to uint8 over the range of the input, extended to contain zero.
func opDynamicQuantize(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	lo, hi := 0.0, 0.0
	for _, v := range x.F {
		lo, hi = math.Min(lo, v), math.Max(hi, v)
	}
	scale := c.RoundOne(onnx.Float, (hi-lo)/255)
	zero := int64(0)
	if scale != 0 {
		zero = clampRound(c.RoundOne(onnx.Float, -lo/scale), 0, 0, 255)
	}
	r := tensor.ZeroInts(onnx.Uint8, x.Shape)
	for i, v := range x.F {
		if scale != 0 {
			v = c.RoundOne(onnx.Float, v/scale)
		}
		r.I[i] = clampRound(v, zero, 0, 255)
	}
	return []*tensor.Tensor{r, tensor.ScalarF(onnx.Float, scale), tensor.NewInts(onnx.Uint8, []int{}, []int64{zero})}
}

// shifted returns an integer matrix as int32 minus its zero point, which is one number, one per row (left side) or one
// per column (right side).
func shifted(c *op.Call, i, zero int, left bool) *tensor.Tensor {
	x := c.In[i]
	v, _ := c.Integers(i)
	z, ok := c.Integers(zero)
	if !ok {
		return tensor.NewInts(onnx.Int32, x.Shape, v)
	}
	shape := c.In[zero].Shape
	if left && len(z) > 1 && len(shape) == 1 {
		shape = []int{len(z), 1}
	}
	if !tensor.BroadcastsTo(shape, x.Shape) {
		tensor.Fail("a zero point of %v does not fit %v", c.In[zero].Shape, x.Shape)
	}
	return tensor.NewInts(onnx.Int32, x.Shape, tensor.ZipWith(v, x.Shape, z, shape, x.Shape, elementwise.Subtract))
}

// opMatMulInteger multiplies 8-bit matrices minus their zero points, in int32.
func opMatMulInteger(c *op.Call) []*tensor.Tensor {
	return op.One(tensor.MatMul(shifted(c, 0, 2, true), shifted(c, 1, 3, false)))
}

// opQLinearMatMul multiplies quantized matrices and quantizes the product.
func opQLinearMatMul(c *op.Call) []*tensor.Tensor {
	a, b := shifted(c, 0, 2, true), shifted(c, 3, 5, false)
	as, bs, ys := c.Number(1, 1), c.Number(4, 1), c.Number(6, 1)
	zero := c.Integer(7, 0)
	p := tensor.MatMul(a, b)
	to := c.In[7].DataType
	lo, hi := elements.Range(to)
	return op.One(tensor.NewInts(to, p.Shape,
		tensor.MapSlice(p.I, func(v int64) int64 { return clampRound(float64(v)*as*bs/ys, zero, lo, hi) })))
}
