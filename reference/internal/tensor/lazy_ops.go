package tensor

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// reshape returns a view of the same elements, in row-major order, in another shape.
func (v *view) reshape(shape []int) *view {
	if n := Size(v.lead); Size(shape) > 0 {
		for i := len(shape); i >= 0; i-- { // the same blocks
			if Size(shape[:i]) == n {
				if r, ok := v.inside(shape[:i], shape[i:]); ok {
					return r.tidy()
				}
			}
		}
		if w, ok := v.whole(); ok {
			if r, ok := w.inside(nil, shape); ok {
				return r.tidy()
			}
		}
	}
	return fresh(shape, v)
}

// inside changes the dimensions of the blocks if that moves no element.
func (v *view) inside(lead, inner []int) (*view, bool) {
	if Size(inner) != Size(v.inner) {
		return nil, false
	}
	r := &view{lead: lead, inner: inner, blocks: make([]block, len(v.blocks))}
	for i, b := range v.blocks {
		st, ok := onnx.Restride(v.inner, b.strides, inner)
		if !ok {
			return nil, false
		}
		r.blocks[i] = block{b.src, b.offset, st}
	}
	return r, true
}

// transpose makes dimension i of the result from dimension perm[i].
func (v *view) transpose(perm []int) *view {
	n := len(v.lead)
	within := true
	for _, p := range perm[:n] {
		within = within && p < n
	}
	if !within {
		w, ok := v.whole()
		if !ok {
			w, n = &view{inner: v.shape(), blocks: []block{{v, 0, onnx.RowMajor(v.shape())}}}, 0
		}
		v, n = w, 0
	}
	shape := v.shape()
	to := make([]int, len(perm))
	for i, p := range perm {
		to[i] = shape[p]
	}
	st, from := onnx.RowMajor(v.lead), make([]int, n)
	for i, p := range perm[:n] {
		from[i] = st[p]
	}
	r := v.pick(to[:n], ReadStrided(UpTo(len(v.blocks)), to[:n], from, 0))
	r.inner = to[n:]
	for i, b := range r.blocks {
		st := make([]int, len(perm)-n)
		for k, p := range perm[n:] {
			st[k] = b.strides[p-n]
		}
		r.blocks[i].strides = st
	}
	return r.tidy()
}

// cut takes count elements of a dimension, from one on, in steps.
func (v *view) cut(axis, from, count, step int) *view {
	n := len(v.lead)
	if axis < n {
		var rows []int
		for i := range count {
			rows = append(rows, from+i*step)
		}
		lead := slices.Clone(v.lead)
		lead[axis] = count
		return v.pick(lead, rowPlaces(v.lead, axis, rows))
	}
	r := &view{lead: v.lead, inner: slices.Clone(v.inner), blocks: make([]block, len(v.blocks))}
	r.inner[axis-n] = count
	for i, b := range v.blocks {
		st := slices.Clone(b.strides)
		st[axis-n] *= step
		r.blocks[i] = block{b.src, b.offset + from*b.strides[axis-n], st}
	}
	return r
}

// rowPlaces returns the places, in row-major order, of these rows of a dimension.
func rowPlaces(shape []int, axis int, rows []int) []int {
	d, outer, inner := shape[axis], Size(shape[:axis]), Size(shape[axis+1:])
	places := make([]int, 0, outer*len(rows)*inner)
	for o := range outer {
		for _, k := range rows {
			for i := range inner {
				places = append(places, (o*d+k)*inner+i)
			}
		}
	}
	return places
}

// gather replaces a dimension by those of the indices. It returns false if that needs too many blocks.
func (v *view) gather(axis int, index []int, rows []int) (*view, bool) {
	v, ok := v.pushTo(axis)
	if !ok {
		return nil, false
	}
	if axis == len(v.lead) { // rows of each block, such as those of an embedding
		if len(v.blocks)*len(rows) > maxBlocks {
			return nil, false
		}
		r := &view{lead: slices.Concat(v.lead, index), inner: v.inner[1:]}
		for _, b := range v.blocks {
			for _, k := range rows {
				r.blocks = append(r.blocks, block{b.src, b.offset + k*b.strides[0], b.strides[1:]})
			}
		}
		return r.tidy(), true
	}
	if Size(v.lead[:axis])*len(rows)*Size(v.lead[axis+1:]) > maxBlocks {
		return nil, false
	}
	return v.pick(slices.Concat(v.lead[:axis], index, v.lead[axis+1:]), rowPlaces(v.lead, axis, rows)).tidy(), true
}

// tuples takes the parts at the index tuples, given as places in the first dims dimensions.
func (v *view) tuples(dims int, index []int, places []int) (*view, bool) {
	v, ok := v.pushTo(dims)
	if !ok || len(places)*Size(v.lead[dims:]) > maxBlocks {
		return nil, false
	}
	first := []int{Size(v.lead[:dims]), Size(v.lead[dims:])}
	return v.pick(slices.Concat(index, v.lead[dims:]), rowPlaces(first, 0, places)).tidy(), true
}

// joined is parts one after the other along a dimension.
type joined struct {
	parts []*Tensor
	axis  int
	sizes []int // elements of each part per step along the preceding dimensions
	all   int   // their sum
}

func (s *joined) read(dst []float64, offset, stride int) error {
	if stride < 1 && len(dst) > 1 {
		return oneByOne(s, dst, offset, stride)
	}
	stride = max(stride, 1)
	for i := 0; i < len(dst); {
		outer, at := offset/s.all, offset%s.all
		k := 0
		for at >= s.sizes[k] {
			at -= s.sizes[k]
			k++
		}
		n := min((s.sizes[k]-at+stride-1)/stride, len(dst)-i)
		if err := s.parts[k].view().read(dst[i:i+n], outer*s.sizes[k]+at, stride); err != nil {
			return err
		}
		i, offset = i+n, offset+n*stride
	}
	return nil
}

// concatLazy joins tensors of which at least one is lazy. Their shapes must fit.
func concatLazy(in []*Tensor, axis int, shape []int) *Tensor {
	first := in[0].view()
	r := &view{lead: slices.Clone(first.lead), inner: first.inner}
	alike := axis < len(first.lead) && Size(first.lead[:axis]) == 1
	for _, t := range in {
		v := t.view()
		if alike = alike && len(v.lead) == len(first.lead) && len(r.blocks)+len(v.blocks) <= maxBlocks; !alike {
			break
		}
		r.blocks = append(r.blocks, v.blocks...)
	}
	if alike {
		r.lead[axis] = shape[axis]
		return viewed(in[0].DataType, r)
	}
	s := &joined{parts: in, axis: axis}
	for _, t := range in {
		n := Size(t.Shape[axis:])
		s.sizes, s.all = append(s.sizes, n), s.all+n
	}
	return lazily(in[0].DataType, shape, s)
}

// CastLazy rounds elements as they are read.
func CastLazy(x *Tensor, to onnx.DataType, rounds bool) *Tensor {
	if !rounds {
		return viewed(to, x.lazy)
	}
	v := &view{lead: x.lazy.lead, inner: x.lazy.inner, blocks: slices.Clone(x.lazy.blocks)}
	wrapped := map[reader]reader{}
	for i, b := range v.blocks {
		if wrapped[b.src] == nil {
			wrapped[b.src] = &rounded{b.src, to}
		}
		v.blocks[i].src = wrapped[b.src]
	}
	return viewed(to, v)
}

// GatherLazy replaces a dimension of a lazy tensor by those of the indices. It returns false if that needs too many
// blocks.
func GatherLazy(x *Tensor, axis int, index, rows []int) (*Tensor, bool) {
	v, ok := x.lazy.gather(axis, index, rows)
	if !ok {
		return nil, false
	}
	return viewed(x.DataType, v), true
}

// TuplesLazy takes the parts of a lazy tensor at the index tuples, given as places in the first dims dimensions. It
// returns false if that needs too many blocks.
func TuplesLazy(x *Tensor, dims int, index, places []int) (*Tensor, bool) {
	v, ok := x.lazy.tuples(dims, index, places)
	if !ok {
		return nil, false
	}
	return viewed(x.DataType, v), true
}

// CutLazy takes count elements of a dimension of a lazy tensor, from one on, in steps.
func CutLazy(x *Tensor, axis, from, count, step int) *Tensor {
	return viewed(x.DataType, x.lazy.cut(axis, from, count, step))
}

// Entry returns entry i of the first dimension, without that dimension, as a lazy tensor.
func Entry(x *Tensor, i int) *Tensor {
	v, ok := x.view().pushTo(1)
	if !ok {
		v, _ = Try(x.Dense()).view().pushTo(1)
	}
	return viewed(x.DataType, v.cut(0, i, 1, 1).reshape(x.Shape[1:]))
}
