package reference

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var constantOps = map[string]opDef{
	"Constant":        plain(0, opConstant),
	"ConstantOfShape": plain(1, opConstantOfShape),
	"Range":           arith(3, opRange),
	"EyeLike":         plain(1, opEyeLike),
	"OneHot":          plain(3, opOneHot),
	"Dropout":         plain(1, opDropout),
}

// opConstant accepts any of the attributes; the value may be an attribute of the enclosing function.
func opConstant(c *call) []*Tensor {
	for _, own := range c.n.Attributes {
		a := c.attr(own.Name)
		if a == nil {
			fail("attribute %q refers to %q, which the call of the function does not pass", own.Name, own.RefName)
		}
		if t := a.Constant(own.Name); t != nil {
			return one(try(FromONNX(t)))
		}
	}
	fail("no value, or a sparse one, which the built-in evaluator has not")
	return nil
}

func opConstantOfShape(c *call) []*Tensor {
	dims, _ := c.integers(0)
	shape := toInts(dims)
	check(checkShape(shape))
	v := scalarF(onnx.Float, 0)
	if a := c.attr("value"); a != nil && a.Tensor != nil {
		if v = try(FromONNX(a.Tensor)); v.Len() != 1 {
			fail("the value is %s, expected one element", v)
		}
	}
	return one(v.WithShape([]int{}).expandTo(shape))
}

// opRange computes each element from its index, start + i*delta, like numpy.
func opRange(c *call) []*Tensor {
	c.sameType(0, 1, 2)
	t := c.in[0].DataType
	start, limit, delta := c.number(0, 0), c.number(1, 0), c.number(2, 0)
	if delta == 0 {
		fail("delta is 0")
	}
	n := math.Ceil((limit - start) / delta)
	if !(n < float64(maxElements)) {
		fail("from %v to %v by %v: too many elements", start, limit, delta)
	}
	count := int(max(n, 0))
	if isFloat(t) {
		r := newFloats(t, []int{count})
		for i := range r.F {
			r.F[i] = start + float64(i)*delta
		}
		return one(r)
	}
	r := newInts(t, []int{count})
	s, d := c.integer(0, 0), c.integer(2, 1)
	for i := range r.I {
		r.I[i] = s + int64(i)*d
	}
	return one(r)
}

func opEyeLike(c *call) []*Tensor {
	x := c.in[0]
	if x.Rank() != 2 {
		fail("the input has rank %d, expected a matrix", x.Rank())
	}
	t, k := onnx.DataType(c.int("dtype", int64(x.DataType))), c.int("k", 0)
	eye := newInts(onnx.Bool, x.Shape)
	for i := range eye.I {
		eye.I[i] = boolInt(int64(i%x.Shape[1])-int64(i/x.Shape[1]) == k)
	}
	return one(cast(eye, t, true, "up", c.exact()))
}

// opOneHot puts values[1] at the index along a new axis of depth elements, and values[0] elsewhere. For an index
// outside [-depth, depth) all elements are values[0].
func opOneHot(c *call) []*Tensor {
	x, values := c.in[0], c.in[2]
	depth := c.number(1, 0)
	axis := c.axis(c.int("axis", -1), x.Rank()+1)
	if x.DataType == onnx.String || x.isSeq {
		fail("the indices are %s, expected numbers", x)
	}
	if values.Len() != 2 || depth < 0 || depth >= float64(maxElements) {
		fail("depth %v and values %s, expected a size and two values", depth, values)
	}
	n := int(depth)
	shape := slices.Insert(slices.Clone(x.Shape), axis, n)
	check(checkShape(shape))
	index := make([]int, size(shape))
	inner := size(x.Shape[axis:])
	for i := range x.Len() {
		k := truncate(x.floatAt(i))
		if k < 0 {
			k += int64(n)
		}
		if k >= 0 && k < int64(n) {
			index[(i/inner*n+int(k))*inner+i%inner] = 1
		}
	}
	return one(values.take(shape, index))
}

// opDropout is the identity. It rejects training mode, whose result is random.
func opDropout(c *call) []*Tensor {
	if c.arg(2) != nil && c.integer(2, 0) != 0 && c.number(1, 0.5) != 0 {
		fail("training_mode is set: the result is random")
	}
	kept := int64(1)
	if c.opset() == 10 || c.opset() == 11 { // like onnxruntime's op of these opsets; the standard leaves it open
		kept = 0
	}
	mask := NewInts(onnx.Bool, c.in[0].Shape, slices.Repeat([]int64{kept}, c.in[0].Len()))
	if c.opset() < 10 { // the mask had the input's type
		mask = cast(mask, c.in[0].DataType, true, "up", c.exact())
	}
	return []*Tensor{c.in[0], mask}
}
