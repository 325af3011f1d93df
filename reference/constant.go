package reference

import (
	"fmt"
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

// opConstant takes any of the spellings; the value may be an attribute of the enclosing function.
func opConstant(c *call) ([]*Tensor, error) {
	for _, own := range c.n.Attributes {
		a := c.attr(own.Name)
		if a == nil {
			return nil, fmt.Errorf("attribute %q refers to %q, which the call of the function does not give", own.Name,
				own.RefName)
		}
		switch own.Name {
		case "value":
			if a.Tensor == nil {
				return nil, fmt.Errorf("attribute value holds no tensor")
			}
			t, err := FromONNX(a.Tensor)
			if err != nil {
				return nil, err
			}
			return one(t)
		case "value_float":
			return one(scalarF(onnx.Float, float64(a.Float)))
		case "value_floats":
			return one(NewFloats(onnx.Float, []int{len(a.Floats)},
				mapSlice(a.Floats, func(v float32) float64 { return float64(v) })))
		case "value_int":
			return one(NewInts(onnx.Int64, []int{}, []int64{a.Int}))
		case "value_ints":
			return one(vector(slices.Clone(a.Ints)))
		case "value_string":
			return one(&Tensor{DataType: onnx.String, Shape: []int{}, S: []string{a.String}})
		case "value_strings":
			return one(&Tensor{DataType: onnx.String, Shape: []int{len(a.Strings)}, S: slices.Clone(a.Strings)})
		case "sparse_value":
			return nil, fmt.Errorf("the built-in evaluator has no sparse tensors")
		}
	}
	return nil, fmt.Errorf("no value")
}

func opConstantOfShape(c *call) ([]*Tensor, error) {
	dims, _ := c.integers(0)
	shape := toInts(dims)
	if err := checkShape(shape); err != nil {
		return nil, err
	}
	v := scalarF(onnx.Float, 0)
	if a := c.attr("value"); a != nil && a.Tensor != nil {
		var err error
		if v, err = FromONNX(a.Tensor); err != nil {
			return nil, err
		}
		if v.Len() != 1 {
			return nil, fmt.Errorf("the value is %s, expected one element", v)
		}
	}
	return one(v.withShape([]int{}).expandTo(shape))
}

// opRange computes each element from its index, start + i*delta, as numpy does.
func opRange(c *call) ([]*Tensor, error) {
	if !c.sameType(0, 1, 2) {
		return nil, c.err
	}
	t := c.in[0].DataType
	start, limit, delta := c.number(0, 0), c.number(1, 0), c.number(2, 0)
	if c.err == nil && delta == 0 {
		c.fail("delta is 0")
	}
	if c.err != nil {
		return nil, c.err
	}
	n := math.Ceil((limit - start) / delta)
	if !(n < float64(maxElements)) {
		return nil, fmt.Errorf("from %v to %v by %v: too many elements", start, limit, delta)
	}
	count := int(max(n, 0))
	if isFloat(t) {
		r := c.newFloats(t, []int{count})
		for i := range r.F {
			r.F[i] = start + float64(i)*delta
		}
		return one(r)
	}
	r := c.newInts(t, []int{count})
	s, d := c.integer(0, 0), c.integer(2, 1)
	for i := range r.I {
		r.I[i] = s + int64(i)*d
	}
	return one(r)
}

func opEyeLike(c *call) ([]*Tensor, error) {
	x := c.in[0]
	if x.Rank() != 2 {
		return nil, fmt.Errorf("the input has rank %d, expected a matrix", x.Rank())
	}
	t, k := onnx.DataType(c.int("dtype", int64(x.DataType))), c.int("k", 0)
	r := &Tensor{DataType: t, Shape: x.Shape}
	eye := make([]int64, x.Len())
	for i := range eye {
		eye[i] = boolInt(int64(i%x.Shape[1])-int64(i/x.Shape[1]) == k)
	}
	if isFloat(t) {
		r.F = mapSlice(eye, func(v int64) float64 { return float64(v) })
	} else {
		r.I = eye
	}
	return one(r)
}

// opOneHot puts values[1] at the index along a new axis of depth elements, values[0] elsewhere; an index outside
// [-depth, depth) gives values[0] throughout.
func opOneHot(c *call) ([]*Tensor, error) {
	x, values := c.in[0], c.in[2]
	depth := c.number(1, 0)
	axis := c.axis(c.int("axis", -1), x.Rank()+1)
	if x.DataType == onnx.String || x.isSeq {
		c.fail("the indices are %s, expected numbers", x)
	}
	if c.err == nil && (values.Len() != 2 || depth < 0 || depth >= float64(maxElements)) {
		c.fail("depth %v and values %s, expected a size and two values", depth, values)
	}
	if c.err != nil {
		return nil, c.err
	}
	n := int(depth)
	shape := slices.Insert(slices.Clone(x.Shape), axis, n)
	if err := checkShape(shape); err != nil {
		return nil, err
	}
	index := make([]int64, size(shape))
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
	r := &Tensor{DataType: values.DataType, Shape: shape}
	switch {
	case values.IsFloat():
		r.F = mapSlice(index, func(k int64) float64 { return values.F[k] })
	case isInt(values.DataType):
		r.I = mapSlice(index, func(k int64) int64 { return values.I[k] })
	default:
		r.S = mapSlice(index, func(k int64) string { return values.S[k] })
	}
	return one(r)
}

// opDropout is the identity: training is refused, for its result is random.
func opDropout(c *call) ([]*Tensor, error) {
	if c.arg(2) != nil && c.integer(2, 0) != 0 && c.number(1, 0.5) != 0 {
		return nil, fmt.Errorf("training_mode is set: the result is random")
	}
	mask := NewInts(onnx.Bool, c.in[0].Shape, slices.Repeat([]int64{1}, c.in[0].Len()))
	if c.opset() < 10 { // the mask had the input's type
		return []*Tensor{c.in[0], mask.asType(c.in[0].DataType)}, nil
	}
	return []*Tensor{c.in[0], mask}, nil
}

func (t *Tensor) asType(d onnx.DataType) *Tensor {
	if !isFloat(d) {
		return t.withType(d)
	}
	return NewFloats(d, t.Shape, t.toFloats())
}
