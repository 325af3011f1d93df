package formula

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// reader reads an element of a node's output.
type reader func(r *Reader, n *onnx.Node, v *onnx.Value, at []*Expr) *Expr

// readers holds the readers of the supported ops.
var readers map[string]reader

func init() { // in init, because the functions refer to the table
	readers = map[string]reader{"Shape": (*Reader).shape, "Size": (*Reader).sizeOf, "Identity": (*Reader).same,
		"Dropout": (*Reader).dropout, "Cast": (*Reader).cast, "CastLike": (*Reader).cast,
		"Unsqueeze": (*Reader).reshape,
		"Squeeze":   (*Reader).reshape, "Reshape": (*Reader).reshape, "Flatten": (*Reader).reshape,
		"Transpose": (*Reader).transpose, "Expand": (*Reader).expand, "Tile": (*Reader).tile, "Slice": (*Reader).slice,
		"Gather": (*Reader).gather, "GatherND": (*Reader).gatherND, "Concat": (*Reader).concat,
		"Split": (*Reader).split,
		"Trilu": (*Reader).trilu, "EyeLike": (*Reader).eye, "Range": (*Reader).span,
		"ConstantOfShape": (*Reader).filled, "CumSum": (*Reader).cumulated, "Clip": (*Reader).clip,
		"ReduceSum": (*Reader).reduce, "ReduceMax": (*Reader).reduce, "ReduceMin": (*Reader).reduce,
		"ReduceMean": (*Reader).reduce, "ReduceProd": (*Reader).reduce}
}

// elementwise are the ops whose results are functions of the elements at the same place.
var elementwise = map[string]bool{}

func init() {
	for _, op := range []string{"Add", "Sub", "Mul", "Div", "Mod", "Pow", "Neg", "Min", "Max", "Sum", "Less", "Greater",
		"LessOrEqual", "GreaterOrEqual", "Equal", "Abs", "Relu", "Sign", "IsNaN", "IsInf", "Where", "And", "Or", "Not",
		"Xor"} {
		elementwise[op] = true
	}
	for op := range unary {
		elementwise[op] = true
	}
	for op := range elementwise {
		readers[op] = (*Reader).elementwise
	}
}

// Elementwise reports whether a node is a supported op whose results are functions of the elements at the same place.
func Elementwise(n *onnx.Node) bool { return onnx.IsStandardDomain(n.Domain) && elementwise[n.OpType] }

func (r *Reader) elementwise(n *onnx.Node, v *onnx.Value, at []*Expr) *Expr {
	var args []*Expr
	for _, in := range n.Inputs {
		if in == nil {
			return r.unknown(n, "an input is missing")
		}
		args = append(args, r.broadcast(n, in, v, at))
	}
	of := r.g.Facts.DataType(n.Inputs[0])
	if n.Is("Mod") && n.AttrInt("fmod", 0) != 0 && !of.IsFloat() {
		return r.unknown(n, "its op is not supported here")
	}
	if of.IsInteger() {
		return r.integers(n, n.OpType, args...)
	}
	return r.apply(n, n.OpType, args...)
}

func (r *Reader) same(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	return r.Element(n.Inputs[0], at...)
}

// dropout returns the input unless the node is training.
func (r *Reader) dropout(n *onnx.Node, v *onnx.Value, at []*Expr) *Expr {
	if v.Output != 0 || n.IsRandom() {
		return r.unknown(n, "it is random")
	}
	return r.Element(n.Inputs[0], at...)
}

func (r *Reader) cast(n *onnx.Node, v *onnx.Value, at []*Expr) *Expr {
	from, to := r.g.Facts.DataType(n.Inputs[0]), r.g.Facts.DataType(v)
	e := r.Element(n.Inputs[0], at...)
	switch {
	case (to.IsHalf() || to.IsInteger() && to != onnx.Int64 && to != onnx.Int32 && to != onnx.Uint64 &&
		to != onnx.Uint32) && e.counts():
		return r.unknown(n, "%s cannot hold all positions", to)
	case to == onnx.Bool && from != onnx.Bool:
		return r.apply(n, "Not", r.apply(n, "Equal", e, r.number(0)))
	case to.IsInteger() && from.IsFloat():
		return r.integers(n, opTrunc, e)
	case to.IsFloat() || to.IsInteger() || to == onnx.Bool:
		return e
	}
	return r.unknown(n, "it casts to %s", to)
}

// counts reports whether a formula grows with positions or lengths; conditions do not.
func (e *Expr) counts() bool {
	switch e.op {
	case opValue:
		return e.value.Sum != nil
	case opLookup, opElement, "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not":
		return false
	case "Where":
		return e.args[1].counts() || e.args[2].counts()
	}
	return slices.ContainsFunc(e.args, (*Expr).counts)
}

func (r *Reader) shape(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	dims := r.dims(n.Inputs[0])
	if dims == nil {
		return r.unknown(n, "the shape of %q is not known for all sizes", n.Inputs[0].Name)
	}
	from, to := reference.ShapeRange(n.AttrInt("start", 0), n.AttrInt("end", int64(len(dims))), int64(len(dims)))
	return r.pick(n, dims[from:max(from, to)], at[0])
}

// pick returns the formula at an index of a list.
func (r *Reader) pick(n *onnx.Node, list []*Expr, at *Expr) *Expr {
	if at.op == opValue && at.value.Sum == nil {
		if i := int(at.value.Number); i >= 0 && i < len(list) {
			return list[i]
		}
		return r.unknown(n, "it is read beyond its end")
	}
	if len(list) == 0 {
		return r.unknown(n, "it has no elements")
	}
	e := list[len(list)-1]
	for i, x := range slices.Backward(list[:len(list)-1]) {
		e = r.apply(n, "Where", r.apply(n, "Equal", at, r.number(int64(i))), x, e)
	}
	return e
}

func (r *Reader) sizeOf(n *onnx.Node, _ *onnx.Value, _ []*Expr) *Expr {
	dims := r.dims(n.Inputs[0])
	if dims == nil {
		return r.unknown(n, "the shape of %q is not known for all sizes", n.Inputs[0].Name)
	}
	e := r.number(1)
	for _, d := range dims {
		e = r.integers(n, "Mul", e, d)
	}
	return e
}

// reshape finds the place in the input of a node that keeps the order of elements.
func (r *Reader) reshape(n *onnx.Node, v *onnx.Value, at []*Expr) *Expr {
	in := n.Inputs[0]
	from, to := r.dims(in), r.dims(v)
	if from == nil || to == nil {
		return r.unknown(n, "the shape of %q is not known for all sizes", v.Name)
	}
	place := make([]*Expr, 0, len(from))
	i := 0 // index into to
	for k := 0; k < len(from); {
		if from[k].is(1) {
			place = append(place, r.number(0))
			k++
			continue
		}
		for i < len(to) && to[i].is(1) {
			i++
		}
		if i == len(to) {
			return r.unknown(n, "the shapes of %q and %q are not compared", in.Name, v.Name)
		}
		if from[k] == to[i] {
			place = append(place, at[i])
			k, i = k+1, i+1
			continue
		}
		parts, ok := r.grouped(from[k], to[i:])
		if ok { // several dimensions become one
			e := at[i]
			for p := 1; p < parts; p++ {
				e = r.integers(n, "Add", r.integers(n, "Mul", e, to[i+p]), at[i+p])
			}
			place = append(place, e)
			k, i = k+1, i+parts
			continue
		}
		if parts, ok = r.grouped(to[i], from[k:]); !ok { // one becomes several
			return r.unknown(n, "the shapes of %q and %q are not compared", in.Name, v.Name)
		}
		rest := at[i]
		list := make([]*Expr, parts)
		for p := parts - 1; p > 0; p-- {
			list[p] = r.integers(n, "Mod", rest, from[k+p])
			rest = r.integers(n, "Div", rest, from[k+p])
		}
		list[0] = rest
		place = append(place, list...)
		k, i = k+parts, i+1
	}
	return r.Element(in, place...)
}

// grouped reports whether a dimension is the product of the first ones of a list, and of how many.
func (r *Reader) grouped(d *Expr, list []*Expr) (parts int, ok bool) {
	want, ok := d.value.asSum()
	product := Number(1)
	for i, e := range list {
		s, is := e.value.asSum()
		if !ok || !is {
			return 0, false
		}
		if product, is = product.product(s); !is {
			return 0, false
		}
		if product.Equal(want) {
			return i + 1, i > 0
		}
	}
	return 0, false
}

func (r *Reader) transpose(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	perm := n.AttrInts("perm")
	place := make([]*Expr, len(at))
	for i := range at {
		from := len(at) - 1 - i
		if perm != nil {
			from = int(perm[i])
		}
		place[from] = at[i]
	}
	return r.Element(n.Inputs[0], place...)
}

func (r *Reader) expand(n *onnx.Node, v *onnx.Value, at []*Expr) *Expr {
	return r.broadcast(n, n.Inputs[0], v, at)
}

func (r *Reader) tile(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	dims := r.dims(n.Inputs[0])
	if dims == nil {
		return r.unknown(n, "the shape of %q is not known for all sizes", n.Inputs[0].Name)
	}
	place := make([]*Expr, len(at))
	for i := range at {
		switch times := r.Element(n.Inputs[1], r.number(int64(i))); {
		case times.is(1):
			place[i] = at[i]
		case dims[i].is(1):
			place[i] = r.number(0)
		default:
			place[i] = r.integers(n, "Mod", at[i], dims[i])
		}
	}
	return r.Element(n.Inputs[0], place...)
}

// fromEnd returns an index after resolving negative ones, which count from the end.
func (r *Reader) fromEnd(n *onnx.Node, i, dim *Expr) *Expr {
	if i.op == opValue && i.value.Sum == nil {
		if i.value.Number >= 0 {
			return i
		}
		return r.integers(n, "Add", dim, i)
	}
	return r.apply(n, "Where", r.apply(n, "Less", i, r.number(0)), r.integers(n, "Add", i, dim), i)
}

// cut is the part of an axis that a Slice keeps: every step-th place from first on and, for positive steps, before
// last.
type cut struct {
	axis        int
	step        int64
	first, last *Expr
}

// fewElements bounds the constant bounds of a Slice that are not clamped: clamping only matters at lengths up to it,
// which are tried by other means.
const fewElements = 16

// cuts reads the bounds of a Slice, clamped to the input as the op does, if that matters.
func (r *Reader) cuts(n *onnx.Node) ([]cut, *Expr) {
	in := n.Inputs[0]
	dims := r.dims(in)
	if dims == nil || len(n.Inputs) < 3 {
		return nil, r.unknown(n, "the shape of %q is not known for all sizes", in.Name)
	}
	count, ok := r.g.Facts.Dim(n.Inputs[1], 0)
	if !ok {
		return nil, r.unknown(n, "the number of its axes is not known")
	}
	var list []cut
	for k := range count {
		axis, step := k, int64(1)
		if v := n.Input(3); v != nil {
			if axis, ok = r.fixed(r.Element(v, r.number(k))); !ok {
				return nil, r.unknown(n, "its axes are computed")
			}
		}
		if axis < 0 {
			axis += int64(len(dims))
		}
		if v := n.Input(4); v != nil {
			if step, ok = r.fixed(r.Element(v, r.number(k))); !ok || step == 0 {
				return nil, r.unknown(n, "its steps are computed")
			}
		}
		if axis < 0 || axis >= int64(len(dims)) {
			return nil, r.unknown(n, "it has no axis %d", axis)
		}
		d := dims[axis]
		least, most := r.number(0), d
		if step < 0 {
			least, most = r.number(-1), r.integers(n, "Sub", d, r.number(1))
		}
		bound := func(input int, least *Expr) *Expr {
			given := r.Element(n.Inputs[input], r.number(k))
			e := r.fromEnd(n, given, d)
			if x, ok := r.fixed(given); ok && -fewElements <= x && x <= fewElements && step > 0 || r.limit(n, e, d) {
				return e
			}
			return r.apply(n, "Max", least, r.apply(n, "Min", e, most))
		}
		list = append(list, cut{int(axis), step, bound(1, r.number(0)), bound(2, least)})
	}
	return list, nil
}

// A Limit is the assumption that a size is at most that of a table, of which a Slice takes that many rows.
type Limit struct {
	Node *onnx.Node
	Size *Sum
	Most *Sum
}

// limit assumes that a size is within the dimension of a table, if Limits is set. It reports whether it did.
func (r *Reader) limit(n *onnx.Node, size, dim *Expr) bool {
	most, ok := dim.Sum()
	_, number := r.fixed(dim)
	if !ok || !number || r.Limits == nil {
		return false
	}
	values, err := r.Only(size)
	if err != nil || values[0].Sum == nil {
		return false
	}
	l := Limit{n, values[0].Sum, most}
	if !slices.ContainsFunc(*r.Limits, func(o Limit) bool { return o.Node == n && o.Size.Equal(l.Size) }) {
		*r.Limits = append(*r.Limits, l)
		r.AtLeast(most, l.Size)
	}
	return true
}

func (r *Reader) slice(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	cuts, unknown := r.cuts(n)
	if unknown != nil {
		return unknown
	}
	place := slices.Clone(at)
	for _, c := range cuts {
		moved := at[c.axis]
		if c.step != 1 {
			moved = r.integers(n, "Mul", moved, r.number(c.step))
		}
		place[c.axis] = r.integers(n, "Add", moved, c.first)
	}
	return r.Element(n.Inputs[0], place...)
}

// fixed returns the integer that a formula is; ok is false for other formulas.
func (r *Reader) fixed(e *Expr) (int64, bool) {
	if e.op != opValue || e.value.Sum != nil || e.value.Number != math.Trunc(e.value.Number) {
		return 0, false
	}
	return int64(e.value.Number), true
}

func axisOf(n *onnx.Node, rank int) int {
	a := int(n.AttrInt("axis", 0))
	if a < 0 {
		a += rank
	}
	return a
}

func (r *Reader) gather(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	data, indices := n.Inputs[0], n.Inputs[1]
	rank, known := r.g.Facts.Rank(data)
	count, ok := r.g.Facts.Rank(indices)
	axis := axisOf(n, rank)
	if !known || !ok || axis < 0 || axis+count > len(at) {
		return r.unknown(n, "the rank of %q is not known", data.Name)
	}
	d := r.dim(data, axis)
	if d == nil {
		return r.unknown(n, "the shape of %q is not known for all sizes", data.Name)
	}
	i := r.fromEnd(n, r.Element(indices, at[axis:axis+count]...), d)
	return r.Element(data, slices.Concat(at[:axis], []*Expr{i}, at[axis+count:])...)
}

func (r *Reader) gatherND(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	data, indices := n.Inputs[0], n.Inputs[1]
	rank, ok := r.g.Facts.Rank(indices)
	batch := int(n.AttrInt("batch_dims", 0))
	if !ok || rank-1 > len(at) {
		return r.unknown(n, "the rank of %q is not known", indices.Name)
	}
	parts, ok := r.g.Facts.Dim(indices, rank-1)
	if !ok {
		return r.unknown(n, "the shape of %q is not known", indices.Name)
	}
	place := slices.Clone(at[:batch])
	for k := range parts {
		d := r.dim(data, batch+int(k))
		if d == nil {
			return r.unknown(n, "the shape of %q is not known for all sizes", data.Name)
		}
		i := r.Element(indices, append(slices.Clone(at[:rank-1]), r.number(k))...)
		place = append(place, r.fromEnd(n, i, d))
	}
	return r.Element(data, append(place, at[rank-1:]...)...)
}

func (r *Reader) concat(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	axis := axisOf(n, len(at))
	return r.parts(n, n.Inputs, axis, at)
}

// parts returns an element of concatenated values.
func (r *Reader) parts(n *onnx.Node, list []*onnx.Value, axis int, at []*Expr) *Expr {
	place := slices.Clone(at)
	e := at[axis]
	var conditions, elements []*Expr
	for i, v := range list {
		place[axis] = e
		d := r.dim(v, axis)
		if d == nil {
			return r.unknown(n, "the shape of %q is not known for all sizes", v.Name)
		}
		last := i == len(list)-1
		if x, ok := r.fixed(e); ok {
			if size, ok := r.fixed(d); ok {
				switch {
				case x < size && x >= 0:
					elements = append(elements, r.Element(v, place...))
					last = true
				case last:
					return r.unknown(n, "it is read beyond its end")
				default:
					e = r.number(x - size)
					continue
				}
			}
		}
		if len(elements) == len(conditions) {
			elements = append(elements, r.Element(v, place...))
		}
		if last {
			break
		}
		conditions = append(conditions, r.apply(n, "Less", e, d))
		e = r.integers(n, "Sub", e, d)
	}
	whole := elements[len(elements)-1]
	for i, c := range slices.Backward(conditions) {
		whole = r.apply(n, "Where", c, elements[i], whole)
	}
	return whole
}

func (r *Reader) split(n *onnx.Node, v *onnx.Value, at []*Expr) *Expr {
	axis := axisOf(n, len(at))
	e := at[axis]
	for _, before := range n.Outputs[:v.Output] {
		d := r.dim(before, axis)
		if d == nil {
			return r.unknown(n, "the shape of %q is not known for all sizes", v.Name)
		}
		e = r.integers(n, "Add", e, d)
	}
	place := slices.Clone(at)
	place[axis] = e
	return r.Element(n.Inputs[0], place...)
}

func (r *Reader) trilu(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	k := r.number(0)
	if v := n.Input(1); v != nil {
		rank, _ := r.g.Facts.Rank(v)
		k = r.Element(v, slices.Repeat([]*Expr{r.number(0)}, rank)...)
	}
	over := r.integers(n, "Sub", at[len(at)-1], at[len(at)-2])
	op := "GreaterOrEqual"
	if n.AttrInt("upper", 1) == 0 {
		op = "LessOrEqual"
	}
	return r.apply(n, "Where", r.apply(n, op, over, k), r.Element(n.Inputs[0], at...), r.number(0))
}

func (r *Reader) eye(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	k := r.number(n.AttrInt("k", 0))
	return r.apply(n, "Equal", r.integers(n, "Sub", at[1], at[0]), k)
}

func (r *Reader) span(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	step := r.Element(n.Inputs[2])
	e := at[0]
	if !step.is(1) {
		e = r.integers(n, "Mul", e, step)
	}
	return r.integers(n, "Add", e, r.Element(n.Inputs[0]))
}

func (r *Reader) filled(n *onnx.Node, _ *onnx.Value, _ []*Expr) *Expr {
	a := n.Attr("value")
	if a == nil {
		return r.number(0)
	}
	t, err := reference.FromONNX(a.Tensor)
	if err != nil || t.Len() != 1 || t.S != nil {
		return r.unknown(n, "its value cannot be read")
	}
	return r.intern(Expr{op: opValue, value: Value{Number: newTable(t).at(0)}})
}

func (r *Reader) clip(n *onnx.Node, _ *onnx.Value, at []*Expr) *Expr {
	e := r.Element(n.Inputs[0], at...)
	for i, op := range []string{"Max", "Min"} {
		if v := n.Input(1 + i); v != nil {
			rank, _ := r.g.Facts.Rank(v)
			e = r.apply(n, op, e, r.Element(v, slices.Repeat([]*Expr{r.number(0)}, rank)...))
		}
	}
	return e
}
