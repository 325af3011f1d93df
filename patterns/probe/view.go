package probe

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// weightView says where the elements of a value lie in the initializers that it is made from by ops that only move
// elements: it is a strided view of one initializer, or of a list of them.
type weightView struct {
	// origins are places in initializers. At an index, numbers says which of them the element is counted from, and
	// elements how far.
	origins           []origin
	elements, numbers onnx.Strided // of the same dimensions
	// pile is the view whose elements these are, in its order, where no strides say so: until they have a shape
	// again that some do. The rest of the view is its dimensions then.
	pile *weightView
}

// origin is a place in an initializer, counted in elements.
type origin struct {
	Source *onnx.Value
	Offset int64
}

// viewOf is the view of a whole initializer.
func viewOf(v *onnx.Value) *weightView { return inRow(v.Constant().Dims, origin{Source: v}) }

// inRow is the view of the elements behind an origin, in row-major order.
func inRow(dims []int64, at origin) *weightView {
	return &weightView{origins: []origin{at}, elements: onnx.InRow(dims),
		numbers: onnx.Strided{Dims: dims, Strides: make([]int64, len(dims))}}
}

func (w *weightView) dims() []int64 { return w.elements.Dims }

func (w *weightView) rank() int { return len(w.elements.Dims) }

func (w *weightView) dim(axis int) int64 { return w.elements.Dims[axis] }

// moved returns the view with both strides changed in one way; nil where they cannot be.
func (w *weightView) moved(by func(onnx.Strided) (onnx.Strided, bool)) *weightView {
	elements, ok1 := by(w.elements)
	numbers, ok2 := by(w.numbers)
	if !ok1 || !ok2 {
		return nil
	}
	return &weightView{origins: w.origins, elements: elements, numbers: numbers}
}

// slice takes n places of an axis, from one on, in steps; nil when they are not there.
func (w *weightView) slice(axis int, from, n, by int64) *weightView {
	if n < 1 {
		return nil
	}
	return w.moved(func(s onnx.Strided) (onnx.Strided, bool) { return s.Slice(axis, from, n, by) })
}

// at takes one place of an axis, which is dropped; nil when it is not there.
func (w *weightView) at(axis int, place int64) *weightView {
	return w.moved(func(s onnx.Strided) (onnx.Strided, bool) {
		one, ok := s.Slice(axis, place, 1, 1)
		return one.Drop(axis), ok
	})
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
		for p := range w.dim(axis) {
			one := w.slice(axis, p, 1, 1).compact()
			if r == nil {
				r = one
				continue
			}
			r.elements.Dims[axis], r.numbers.Dims[axis] = 1, 1
			alike := slices.Equal(r.dims(), one.dims()) && slices.Equal(r.elements.Strides, one.elements.Strides)
			r.numbers.Strides[axis] = 0
			if !alike || !slices.Equal(r.numbers.Strides, one.numbers.Strides) {
				return nil
			}
			r.origins = append(r.origins, one.origins...)
			places := int64(len(r.origins) / len(one.origins))
			r.elements.Dims[axis], r.numbers.Dims[axis] = places, places
			r.numbers.Strides[axis] = int64(len(one.origins))
		}
	}
	return r
}

// compact returns the same view with a list of those origins only that it counts from, in order.
func (w *weightView) compact() *weightView {
	r := &weightView{elements: onnx.Strided{Dims: slices.Clone(w.dims()), Strides: slices.Clone(w.elements.Strides)},
		numbers: onnx.Strided{Dims: slices.Clone(w.dims()), Strides: make([]int64, w.rank())}}
	n := int64(1)
	for i := w.rank() - 1; i >= 0; i-- {
		switch {
		case w.dim(i) == 1:
			r.elements.Strides[i] = 0
		case w.numbers.Strides[i] != 0:
			r.numbers.Strides[i] = n
			n *= w.dim(i)
		}
	}
	var walk func(axis int, number int64)
	walk = func(axis int, number int64) {
		if axis == w.rank() {
			o := w.origins[number]
			r.origins = append(r.origins, origin{o.Source, o.Offset + w.elements.Offset})
			return
		}
		if step := w.numbers.Strides[axis]; w.dim(axis) > 1 && step != 0 {
			for i := range w.dim(axis) {
				walk(axis+1, number+i*step)
			}
			return
		}
		walk(axis+1, number)
	}
	walk(0, w.numbers.Offset)
	return r
}

// transpose changes the order of the axes.
func (w *weightView) transpose(perm []int64) *weightView {
	return w.moved(func(s onnx.Strided) (onnx.Strided, bool) { return s.Transpose(perm) })
}

// reshape returns the same elements other axes; nil where these would need a copy.
func (w *weightView) reshape(dims []int64) *weightView {
	if w.size() == 0 || slices.ContainsFunc(dims, func(d int64) bool { return d < 1 }) {
		return nil
	}
	return w.moved(func(s onnx.Strided) (onnx.Strided, bool) { return s.Reshape(dims) })
}

// reshaped is reshape, or the same elements as a pile where that needs a copy.
func (w *weightView) reshaped(dims []int64) *weightView {
	if w.pile != nil {
		w = w.pile
	}
	if r := w.reshape(dims); r != nil || match.Elements(dims) != w.size() || w.size() == 0 {
		return r
	}
	return &weightView{elements: onnx.Strided{Dims: dims}, pile: w}
}

// expand repeats the axes of one place, and adds axes in front.
func (w *weightView) expand(dims []int64) *weightView {
	return w.moved(func(s onnx.Strided) (onnx.Strided, bool) { return s.Expand(dims) })
}

// repeats reports whether all places of an axis hold the same elements.
func (w *weightView) repeats(axis int) bool {
	stride, step := w.elements.Strides[axis], w.numbers.Strides[axis]
	if w.dim(axis) <= 1 || stride != 0 || step == 0 {
		return w.dim(axis) <= 1 || stride == 0
	}
	first := w.at(axis, 0).compact()
	for p := range w.dim(axis) {
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
		if axis == w.rank() {
			o := w.origins[number]
			visit(origin{o.Source, o.Offset + offset})
			return
		}
		for i := range w.dim(axis) {
			walk(axis+1, number+i*w.numbers.Strides[axis], offset+i*w.elements.Strides[axis])
		}
	}
	walk(0, w.numbers.Offset, w.elements.Offset)
}
