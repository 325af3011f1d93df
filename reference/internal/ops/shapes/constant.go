package shapes

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var constantOps = map[string]op.Def{
	"Constant":        op.Plain(0, opConstant),
	"ConstantOfShape": op.Plain(1, opConstantOfShape),
	"Range":           op.Arith(3, opRange),
	"EyeLike":         op.Plain(1, opEyeLike),
	"OneHot":          op.Plain(3, opOneHot),
	"Dropout":         op.Plain(1, opDropout),
}

// opConstant accepts any of the attributes; the value may be an attribute of the enclosing function.
func opConstant(c *op.Call) []*tensor.Tensor {
	for _, own := range c.Node.Attributes {
		a := c.Attr(own.Name)
		if a == nil {
			tensor.Fail("attribute %q refers to %q, which the call of the function does not pass", own.Name,
				own.RefName)
		}
		if t := a.Constant(own.Name); t != nil {
			return op.One(tensor.Try(tensor.FromONNX(t)))
		}
	}
	tensor.Fail("no value, or a sparse one, which the built-in evaluator has not")
	return nil
}

func opConstantOfShape(c *op.Call) []*tensor.Tensor {
	dims, _ := c.Integers(0)
	shape := tensor.ToInts(dims)
	tensor.Check(tensor.CheckShape(shape))
	v := tensor.ScalarF(onnx.Float, 0)
	if a := c.Attr("value"); a != nil && a.Tensor != nil {
		if v = tensor.Try(tensor.FromONNX(a.Tensor)); v.Len() != 1 {
			tensor.Fail("the value is %s, expected one element", v)
		}
	}
	return op.One(tensor.ExpandTo(v.WithShape([]int{}), shape))
}

// opRange computes each element from its index, start + i*delta, like numpy.
func opRange(c *op.Call) []*tensor.Tensor {
	c.SameType(0, 1, 2)
	t := c.In[0].DataType
	start, limit, delta := c.Number(0, 0), c.Number(1, 0), c.Number(2, 0)
	if delta == 0 {
		tensor.Fail("delta is 0")
	}
	n := math.Ceil((limit - start) / delta)
	if !(n < float64(tensor.MaxElements)) {
		tensor.Fail("from %v to %v by %v: too many elements", start, limit, delta)
	}
	count := int(max(n, 0))
	if tensor.IsFloatType(t) {
		r := tensor.ZeroFloats(t, []int{count})
		for i := range r.F {
			r.F[i] = start + float64(i)*delta
		}
		return op.One(r)
	}
	r := tensor.ZeroInts(t, []int{count})
	s, d := c.Integer(0, 0), c.Integer(2, 1)
	for i := range r.I {
		r.I[i] = s + int64(i)*d
	}
	return op.One(r)
}

func opEyeLike(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	if x.Rank() != 2 {
		tensor.Fail("the input has rank %d, expected a matrix", x.Rank())
	}
	t, k := onnx.DataType(c.Int("dtype", int64(x.DataType))), c.Int("k", 0)
	eye := tensor.ZeroInts(onnx.Bool, x.Shape)
	for i := range eye.I {
		eye.I[i] = tensor.BoolInt(int64(i%x.Shape[1])-int64(i/x.Shape[1]) == k)
	}
	return op.One(elementwise.Cast(eye, t, true, "up", c.Exact))
}

// opOneHot puts values[1] at the index along a new axis of depth elements, and values[0] elsewhere. For an index
// outside [-depth, depth) all elements are values[0].
func opOneHot(c *op.Call) []*tensor.Tensor {
	x, values := c.In[0], c.In[2]
	depth := c.Number(1, 0)
	axis := c.Axis(c.Int("axis", -1), x.Rank()+1)
	if x.DataType == onnx.String || tensor.IsSequence(x) {
		tensor.Fail("the indices are %s, expected numbers", x)
	}
	if values.Len() != 2 || depth < 0 || depth >= float64(tensor.MaxElements) {
		tensor.Fail("depth %v and values %s, expected a size and two values", depth, values)
	}
	n := int(depth)
	shape := slices.Insert(slices.Clone(x.Shape), axis, n)
	tensor.Check(tensor.CheckShape(shape))
	index := make([]int, tensor.Size(shape))
	inner := tensor.Size(x.Shape[axis:])
	for i := range x.Len() {
		k := tensor.Truncate(tensor.FloatAt(x, i))
		if k < 0 {
			k += int64(n)
		}
		if k >= 0 && k < int64(n) {
			index[(i/inner*n+int(k))*inner+i%inner] = 1
		}
	}
	return op.One(tensor.Take(values, shape, index))
}

// opDropout is the identity. It rejects training mode, whose result is random.
func opDropout(c *op.Call) []*tensor.Tensor {
	if c.Arg(2) != nil && c.Integer(2, 0) != 0 && c.Number(1, 0.5) != 0 {
		tensor.Fail("training_mode is set: the result is random")
	}
	kept := int64(1)
	if c.Opset() == 10 || c.Opset() == 11 { // like onnxruntime's op of these opsets; the standard leaves it open
		kept = 0
	}
	mask := tensor.NewInts(onnx.Bool, c.In[0].Shape, slices.Repeat([]int64{kept}, c.In[0].Len()))
	if c.Opset() < 10 { // the mask had the input's type
		mask = elementwise.Cast(mask, c.In[0].DataType, true, "up", c.Exact)
	}
	return []*tensor.Tensor{c.In[0], mask}
}
