package probe

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// weightView says where the elements of a value lie in the initializers that it is made from by ops that only move elements: it
// is a strided view of one initializer, or of a list of them.
type weightView struct {
	axes []viewAxis
	// origins are the places that the axes count from: the element at index i lies strides·i elements behind the origin
	// with the number base + steps·i.
	origins []origin
	base    int64
	// pile is the view whose elements these are, in its order, where no strides say so: until they have a shape again that
	// some do. The rest of the view is its dimensions then.
	pile *weightView
}

type viewAxis struct{ dim, stride, step int64 }

// origin is a place in an initializer, counted in elements.
type origin struct {
	Source *onnx.Value
	Offset int64
}

// viewOf is the view of a whole initializer.
func viewOf(v *onnx.Value) *weightView {
	dims := v.Constant().Dims
	w := &weightView{axes: make([]viewAxis, len(dims)), origins: []origin{{Source: v}}}
	n := int64(1)
	for i := len(dims) - 1; i >= 0; i-- {
		w.axes[i] = viewAxis{dim: dims[i], stride: n}
		n *= dims[i]
	}
	return w
}

func (w *weightView) dims() []int64 {
	d := make([]int64, len(w.axes))
	for i, a := range w.axes {
		d[i] = a.dim
	}
	return d
}

// slice takes n places of an axis, from one on, in steps; nil when they are not there.
func (w *weightView) slice(axis int, from, n, by int64) *weightView {
	a := w.axes[axis]
	if last := from + (n-1)*by; n < 1 || from < 0 || last < 0 || max(from, last) >= a.dim {
		return nil
	}
	r := &weightView{axes: slices.Clone(w.axes), origins: w.origins, base: w.base + from*a.step}
	r.axes[axis] = viewAxis{n, a.stride * by, a.step * by}
	if shift := from * a.stride; shift != 0 {
		r.origins = slices.Clone(w.origins)
		for i := range r.origins {
			r.origins[i].Offset += shift
		}
	}
	return r
}

// at takes one place of an axis, which is dropped; nil when it is not there.
func (w *weightView) at(axis int, place int64) *weightView {
	r := w.slice(axis, place, 1, 1)
	if r != nil {
		r.axes = slices.Delete(r.axes, axis, axis+1)
	}
	return r
}

// pick takes the listed places of an axis; nil where they are not there.
func (w *weightView) pick(axis int, places []int64) *weightView {
	var parts []*weightView
	for _, p := range places {
		parts = append(parts, w.slice(axis, p, 1, 1))
	}
	return joinViews(parts, axis)
}

// joinViews puts views one after the other along an axis; nil where they do not fit.
func joinViews(list []*weightView, axis int) *weightView {
	var r *weightView
	for _, w := range list {
		if w == nil {
			return nil
		}
		for p := range w.axes[axis].dim {
			one := w.slice(axis, p, 1, 1).compact()
			if r == nil {
				r = &weightView{axes: slices.Clone(one.axes)}
				r.axes[axis].dim = 0
			}
			for i, a := range one.axes {
				if b := r.axes[i]; i != axis && (a.dim != b.dim || a.dim > 1 && a != b) {
					return nil
				}
			}
			if len(r.origins) != int(r.axes[axis].dim)*len(one.origins) {
				return nil
			}
			r.origins = append(r.origins, one.origins...)
			r.axes[axis] = viewAxis{dim: r.axes[axis].dim + 1, step: int64(len(one.origins))}
		}
	}
	return r
}

// compact returns the same view with a list of those origins only that it counts from, in order.
func (w *weightView) compact() *weightView {
	r := &weightView{axes: slices.Clone(w.axes)}
	n := int64(1)
	for i := len(r.axes) - 1; i >= 0; i-- {
		switch a := &r.axes[i]; {
		case a.dim == 1:
			*a = viewAxis{dim: 1}
		case a.step != 0:
			a.step = n
			n *= a.dim
		}
	}
	var walk func(axis int, number int64)
	walk = func(axis int, number int64) {
		if axis == len(w.axes) {
			r.origins = append(r.origins, w.origins[number])
			return
		}
		if a := w.axes[axis]; a.dim > 1 && a.step != 0 {
			for i := range a.dim {
				walk(axis+1, number+i*a.step)
			}
			return
		}
		walk(axis+1, number)
	}
	walk(0, w.base)
	return r
}

// transpose changes the order of the axes.
func (w *weightView) transpose(perm []int64) *weightView {
	if len(perm) != len(w.axes) {
		return nil
	}
	r := &weightView{axes: make([]viewAxis, len(perm)), origins: w.origins, base: w.base}
	for i, p := range perm {
		if p < 0 || p >= int64(len(perm)) {
			return nil
		}
		r.axes[i] = w.axes[p]
	}
	return r
}

// reshape returns the same elements other axes; nil where these would need a copy.
func (w *weightView) reshape(dims []int64) *weightView {
	var old []viewAxis // as few as possible
	for _, a := range w.axes {
		last := len(old) - 1
		switch {
		case a.dim == 0:
			return nil
		case a.dim == 1:
		case last >= 0 && old[last].stride == a.dim*a.stride && old[last].step == a.dim*a.step:
			old[last] = viewAxis{old[last].dim * a.dim, a.stride, a.step}
		default:
			old = append(old, a)
		}
	}
	r := &weightView{axes: make([]viewAxis, len(dims)), origins: w.origins, base: w.base}
	for i, d := range dims {
		if r.axes[i].dim = d; d == 1 {
			continue
		}
		if len(old) == 0 || d < 1 || old[0].dim%d != 0 {
			return nil
		}
		old[0].dim /= d
		r.axes[i] = viewAxis{d, old[0].stride * old[0].dim, old[0].step * old[0].dim}
		if old[0].dim == 1 {
			old = old[1:]
		}
	}
	if len(old) > 0 {
		return nil
	}
	return r
}

// reshaped is reshape, or the same elements as a pile where that needs a copy.
func (w *weightView) reshaped(dims []int64) *weightView {
	if w.pile != nil {
		w = w.pile
	}
	if r := w.reshape(dims); r != nil || match.Elements(dims) != w.size() || w.size() == 0 {
		return r
	}
	r := &weightView{axes: make([]viewAxis, len(dims)), pile: w}
	for i, d := range dims {
		r.axes[i].dim = d
	}
	return r
}

// expand repeats the axes of one place, and adds axes in front.
func (w *weightView) expand(dims []int64) *weightView {
	lead := len(dims) - len(w.axes)
	if lead < 0 {
		return nil
	}
	r := &weightView{axes: make([]viewAxis, len(dims)), origins: w.origins, base: w.base}
	for i, d := range dims {
		r.axes[i].dim = d
		if i < lead {
			continue
		}
		switch a := w.axes[i-lead]; {
		case a.dim == d || d == 1:
			r.axes[i] = a
		case a.dim != 1:
			return nil
		}
	}
	return r
}

// repeats reports whether all places of an axis hold the same elements.
func (w *weightView) repeats(axis int) bool {
	a := w.axes[axis]
	if a.dim <= 1 || a.stride != 0 || a.step == 0 {
		return a.dim <= 1 || a.stride == 0
	}
	first := w.at(axis, 0).compact()
	for p := range a.dim {
		if !slices.Equal(w.at(axis, p).compact().origins, first.origins) {
			return false
		}
	}
	return true
}

// size is the number of elements.
func (w *weightView) size() int64 { return match.Elements(w.dims()) }

// each visits the places of the elements in the order of the view.
func (w *weightView) each(visit func(o origin)) {
	if w.pile != nil {
		w = w.pile
	}
	var walk func(axis int, number, offset int64)
	walk = func(axis int, number, offset int64) {
		if axis == len(w.axes) {
			o := w.origins[number]
			visit(origin{o.Source, o.Offset + offset})
			return
		}
		a := w.axes[axis]
		for i := range a.dim {
			walk(axis+1, number+i*a.step, offset+i*a.stride)
		}
	}
	walk(0, w.base, 0)
}
