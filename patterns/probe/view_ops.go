package probe

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// moveView returns the views that a node makes of w, its first input, when it only moves elements; nil when it does
// something else, or something that no view says. ints reads the integers of an input.
func moveView(n *onnx.Node, w *weightView, ints func(i int) *reference.Tensor) []*weightView {
	if slices.ContainsFunc(n.Attributes, func(a *onnx.Attribute) bool { return a.RefName != "" }) {
		return nil
	}
	rank := w.rank()
	var r *weightView
	if w.pile != nil && match.OpKind(n) != "Reshape" && n.OpType != "Identity" && n.OpType != "Cast" {
		return nil
	}
	switch n.OpType {
	case "Identity", "Cast", "CastLike":
		r = w
	case "Transpose":
		perm := n.AttrInts("perm")
		if perm == nil {
			for i := rank - 1; i >= 0; i-- {
				perm = append(perm, int64(i))
			}
		}
		r = w.transpose(perm)
	case "Reshape", "Flatten", "Squeeze", "Unsqueeze":
		if dims, ok := reshapedDims(n, w.dims(), ints); ok {
			r = w.reshaped(dims)
		}
	case "Expand":
		if t := ints(1); t != nil {
			r = w.expand(t.I)
		}
	case "Gather":
		r = w.gather(n, ints(1))
	case "GatherND":
		r = w.gatherND(n, ints(1))
	case "Slice":
		r = w.sliceNode(ints)
	case "Split":
		return w.split(n, ints)
	}
	if r == nil {
		return nil
	}
	return []*weightView{r}
}

// reshapedDims returns the shape that a reshaping node makes of dims.
func reshapedDims(n *onnx.Node, dims []int64, ints func(i int) *reference.Tensor) ([]int64, bool) {
	axes := n.AttrInts("axes")
	if t := ints(1); t != nil && n.OpType != "Flatten" {
		axes = t.I
	}
	rank := int64(len(dims))
	switch n.OpType {
	case "Reshape":
		return reshapeTo(dims, axes, n.AttrInt("allowzero", 0) == 1)
	case "Flatten":
		axis := n.AttrInt("axis", 1)
		if axis < 0 {
			axis += rank
		}
		if axis < 0 || axis > rank {
			return nil, false
		}
		return []int64{match.Elements(dims[:axis]), match.Elements(dims[axis:])}, true
	case "Unsqueeze":
		rank += int64(len(axes))
	}
	at := make([]bool, rank)
	for _, a := range axes {
		if a < 0 {
			a += rank
		}
		if a < 0 || a >= rank {
			return nil, false
		}
		at[a] = true
	}
	var r []int64
	if n.OpType == "Unsqueeze" {
		for _, added := range at {
			switch {
			case added:
				r = append(r, 1)
			case len(dims) == 0:
				return nil, false
			default:
				r, dims = append(r, dims[0]), dims[1:]
			}
		}
		return r, len(dims) == 0
	}
	for i, d := range dims {
		if drop := at[i] || axes == nil && d == 1; !drop {
			r = append(r, d)
		} else if d != 1 {
			return nil, false
		}
	}
	return r, true
}

// reshapeTo reads the shape input of Reshape.
func reshapeTo(dims, shape []int64, allowZero bool) ([]int64, bool) {
	r := slices.Clone(shape)
	known, rest := int64(1), -1
	for i, d := range r {
		switch {
		case d == -1 && rest < 0:
			rest = i
			continue
		case d == 0 && !allowZero && i < len(dims):
			r[i] = dims[i]
		case d < 1:
			return nil, false
		}
		known *= r[i]
	}
	total := match.Elements(dims)
	if rest >= 0 {
		if total%known != 0 {
			return nil, false
		}
		r[rest] = total / known
		known = total
	}
	return r, known == total && shape != nil
}

// wrapped brings negative places into range.
func wrapped(places []int64, size int64) []int64 {
	r := slices.Clone(places)
	for i := range r {
		if r[i] < 0 {
			r[i] += size
		}
	}
	return r
}

// gather takes places of an axis: one, or a list of them.
func (w *weightView) gather(n *onnx.Node, index *reference.Tensor) *weightView {
	axis := int(n.AttrInt("axis", 0))
	if axis < 0 {
		axis += w.rank()
	}
	if index == nil || index.I == nil || axis < 0 || axis >= w.rank() {
		return nil
	}
	return w.picked(axis, index.I, index.Shape)
}

// picked puts the listed places of an axis, in a shape of their own, in place of that axis.
func (w *weightView) picked(axis int, places []int64, shape []int) *weightView {
	places = wrapped(places, w.dim(axis))
	if len(shape) == 0 {
		return w.at(axis, places[0])
	}
	r := w.pick(axis, places)
	if r == nil || len(shape) == 1 {
		return r
	}
	dims := r.dims()[:axis:axis]
	for _, d := range shape {
		dims = append(dims, int64(d))
	}
	return r.reshape(append(dims, r.dims()[axis+1:]...))
}

// gatherND takes places of the first axis.
func (w *weightView) gatherND(n *onnx.Node, index *reference.Tensor) *weightView {
	if index == nil || len(index.Shape) == 0 || index.Shape[len(index.Shape)-1] != 1 ||
		n.AttrInt("batch_dims", 0) != 0 || w.rank() == 0 {
		return nil
	}
	return w.picked(0, index.I, index.Shape[:len(index.Shape)-1])
}

// sliceNode reads a Slice.
func (w *weightView) sliceNode(ints func(i int) *reference.Tensor) *weightView {
	starts, ends := ints(1), ints(2)
	if starts == nil || ends == nil || len(starts.I) != len(ends.I) {
		return nil
	}
	axes, steps := ints(3), ints(4)
	r := w
	for i := range starts.I {
		axis, step := int64(i), int64(1)
		if axes != nil && i < len(axes.I) {
			axis = axes.I[i]
		}
		if steps != nil && i < len(steps.I) {
			step = steps.I[i]
		}
		if axis < 0 {
			axis += int64(w.rank())
		}
		if step < 1 || axis < 0 || axis >= int64(w.rank()) {
			return nil
		}
		size := r.dim(int(axis))
		bound := wrapped([]int64{starts.I[i], ends.I[i]}, size)
		from, to := min(max(bound[0], 0), size), min(max(bound[1], 0), size)
		if r = r.slice(int(axis), from, (to-from+step-1)/step, step); r == nil {
			return nil
		}
	}
	return r
}

// split reads a Split.
func (w *weightView) split(n *onnx.Node, ints func(i int) *reference.Tensor) []*weightView {
	axis := n.AttrInt("axis", 0)
	if axis < 0 {
		axis += int64(w.rank())
	}
	if axis < 0 || axis >= int64(w.rank()) {
		return nil
	}
	sizes := n.AttrInts("split")
	if t := ints(1); t != nil {
		sizes = t.I
	}
	parts := int64(len(n.Outputs))
	each := (w.dim(int(axis)) + parts - 1) / parts
	from := int64(0)
	var list []*weightView
	for i := range n.Outputs {
		size := min(each, w.dim(int(axis))-from)
		if sizes != nil {
			if i >= len(sizes) {
				return nil
			}
			size = sizes[i]
		}
		part := w.slice(int(axis), from, size, 1)
		if part == nil {
			return nil
		}
		list = append(list, part)
		from += size
	}
	return list
}
