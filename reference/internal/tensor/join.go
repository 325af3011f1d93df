package tensor

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Concat joins tensors along an axis. It fails if their shapes do not fit.
func Concat(in []*Tensor, axis int) *Tensor {
	shape := slices.Clone(in[0].Shape)
	shape[axis] = 0
	for _, t := range in {
		same := t.Rank() == len(shape)
		for i := range shape {
			same = same && (i == axis || t.Shape[i] == shape[i])
		}
		if !same {
			Fail("shapes %v and %v do not fit along axis %d", in[0].Shape, t.Shape, axis)
		}
		shape[axis] += t.Shape[axis]
	}
	if slices.ContainsFunc(in, func(t *Tensor) bool { return t.lazy != nil }) {
		Check(BoundShape(shape, MaxLazy))
		return concatLazy(in, axis, shape)
	}
	Check(CheckShape(shape))
	outer := Size(shape[:axis])
	return &Tensor{DataType: in[0].DataType, Shape: shape,
		F: join(in, outer, func(t *Tensor) []float64 { return t.F }),
		I: join(in, outer, func(t *Tensor) []int64 { return t.I }),
		S: join(in, outer, func(t *Tensor) []string { return t.S })}
}

func join[T any](in []*Tensor, outer int, elements func(*Tensor) []T) []T {
	n := -1
	for _, t := range in {
		if v := elements(t); v != nil {
			n = max(n, 0) + len(v)
		}
	}
	if n < 0 { // the elements are of another kind
		return nil
	}
	r := make([]T, 0, n)
	for o := range outer {
		for _, t := range in {
			v := elements(t)
			k := len(v) / outer
			r = append(r, v[o*k:(o+1)*k]...)
		}
	}
	return r
}

// Split cuts a tensor into parts of these sizes along an axis. It fails if they are not the whole.
func Split(x *Tensor, axis int, sizes []int64) []*Tensor {
	if len(sizes) > x.Len()+MaxParts {
		Fail("%v has too few elements for %d parts", x.Shape, len(sizes))
	}
	out := make([]*Tensor, 0, len(sizes))
	st, from := onnx.RowMajor(x.Shape), 0
	for _, n := range ToInts(sizes) {
		if n < 0 || from+n > x.Shape[axis] {
			Fail("sizes %v do not make up dimension %d of %v", sizes, axis, x.Shape)
		}
		shape := slices.Clone(x.Shape)
		shape[axis] = n
		if x.lazy != nil {
			out = append(out, viewed(x.DataType, x.lazy.cut(axis, from, n, 1)))
		} else {
			out = append(out, GatherStrided(x, shape, st, from*st[axis]))
		}
		from += n
	}
	if from != x.Shape[axis] {
		Fail("sizes %v do not make up dimension %d of %v", sizes, axis, x.Shape)
	}
	return out
}

// WithoutAxis drops an axis, which must have size 1.
func WithoutAxis(list []*Tensor, axis int) []*Tensor {
	return MapSlice(list, func(t *Tensor) *Tensor {
		return t.WithShape(slices.Delete(slices.Clone(t.Shape), axis, axis+1))
	})
}
