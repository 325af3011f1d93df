package formula

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// maxReduced bounds the elements along an axis that are read one by one.
const maxReduced = 16

// steady returns the formula of the elements along an axis if it is equal for all of them, in every case; otherwise
// nil.
func (r *Reader) steady(v *onnx.Value, at []*Expr, axis int) *Expr {
	place := r.newVar(fmt.Sprintf("any of %s", v.Name))
	place.natural = true
	along := slices.Clone(at)
	along[axis] = r.Sum(Of(place))
	e := r.Element(v, along...)
	if values, err := r.Only(e); err == nil && (values[0].Sum == nil || !values[0].Sum.has(place)) {
		if values[0].Sum != nil {
			return r.Sum(values[0].Sum)
		}
		return r.intern(Expr{op: opValue, value: values[0]})
	}
	return nil
}

// cumulated reads a CumSum of equal elements, such as ones.
func (r *Reader) cumulated(n *onnx.Node, v *onnx.Value, at []*Expr) *Expr {
	rank, _ := r.g.Facts.Rank(n.Inputs[1])
	x, ok := r.fixed(r.Element(n.Inputs[1], slices.Repeat([]*Expr{r.number(0)}, rank)...))
	axis := int(x)
	if axis < 0 {
		axis += len(at)
	}
	if !ok || axis < 0 || axis >= len(at) || n.AttrInt("reverse", 0) != 0 {
		return r.unknown(n, "its axis or direction is not supported here")
	}
	e := r.steady(n.Inputs[0], at, axis)
	if e == nil {
		return r.unknown(n, "it adds up elements that differ")
	}
	count := at[axis]
	if n.AttrInt("exclusive", 0) == 0 {
		count = r.integers(n, "Add", count, r.number(1))
	}
	return r.integers(n, "Mul", count, e)
}

// reduce reads a reduction over few elements, or over equal ones.
func (r *Reader) reduce(n *onnx.Node, v *onnx.Value, at []*Expr) *Expr {
	in := n.Inputs[0]
	dims := r.dims(in)
	if dims == nil {
		return r.unknown(n, "the shape of %q is not known for all sizes", in.Name)
	}
	axes := n.AttrInts("axes")
	if v := n.Input(1); v != nil {
		count, ok := r.g.Facts.Dim(v, 0)
		for k := range count {
			x, is := r.fixed(r.Element(v, r.number(k)))
			axes, ok = append(axes, x), ok && is
		}
		if !ok {
			return r.unknown(n, "its axes are computed")
		}
	}
	over := make([]bool, len(dims))
	for _, a := range axes {
		if a < 0 {
			a += int64(len(dims))
		}
		over[a] = true
	}
	if len(axes) == 0 {
		if n.AttrInt("noop_with_empty_axes", 0) != 0 {
			return r.Element(in, at...)
		}
		for i := range over {
			over[i] = true
		}
	}
	place := make([]*Expr, len(dims))
	k := 0
	for i := range dims {
		if !over[i] {
			place[i] = at[k]
			k++
		} else if n.AttrInt("keepdims", 1) != 0 {
			k++
		}
	}
	return r.reduced(n, in, dims, over, place, 0)
}

// reduced is reduce over the axes from axis on.
func (r *Reader) reduced(n *onnx.Node, v *onnx.Value, dims []*Expr, over []bool, at []*Expr, axis int) *Expr {
	for axis < len(over) && !over[axis] {
		axis++
	}
	if axis == len(over) {
		return r.Element(v, at...)
	}
	at = slices.Clone(at)
	size, fixed := r.fixed(dims[axis])
	if fixed && size >= 1 && size <= maxReduced {
		var list []*Expr
		for i := range size {
			at[axis] = r.number(i)
			list = append(list, r.reduced(n, v, dims, over, at, axis+1))
		}
		return r.all(n, list)
	}
	for i := axis + 1; i < len(over); i++ {
		if over[i] && !dims[i].is(1) {
			return r.unknown(n, "it reduces several axes")
		} else if over[i] {
			at[i] = r.number(0)
		}
	}
	e := r.steady(v, at, axis)
	switch {
	case e == nil:
		return r.unknown(n, "it reduces elements that differ")
	case n.Is("ReduceSum"):
		return r.integers(n, "Mul", e, dims[axis])
	case n.Is("ReduceProd"):
		return r.unknown(n, "it multiplies as many numbers as a dimension has")
	}
	return e
}

// all combines some formulas by the reduction's op.
func (r *Reader) all(n *onnx.Node, list []*Expr) *Expr {
	op := map[string]string{"ReduceMax": "Max", "ReduceMin": "Min", "ReduceSum": "Add", "ReduceMean": "Add",
		"ReduceProd": "Mul"}[n.OpType]
	e := list[0]
	for _, x := range list[1:] {
		e = r.integers(n, op, e, x)
	}
	if n.Is("ReduceMean") && len(list) > 1 {
		return r.unknown(n, "it takes a mean")
	}
	return e
}
