package rewrite

import "github.com/mojo-patch/mojo-patch/onnx"

const (
	// maxGathered bounds the places that a Gather takes from a weight.
	maxGathered = 1 << 12
	// maxStep keeps strides from overflowing; no slice of a weight has greater ones.
	maxStep = 1 << 16
)

func (f *folder) reshape() (*onnx.Tensor, error) {
	dims := f.dims(0)
	if dims == nil {
		return nil, nil
	}
	return f.data().View(f.name(), dims, 0, nil)
}

// view makes a tensor of elements of the data; nil where ok is false.
func (f *folder) view(v onnx.Strided, ok bool) (*onnx.Tensor, error) {
	if !ok {
		return nil, nil
	}
	return f.data().View(f.name(), v.Dims, v.Offset, v.Strides)
}

func (f *folder) transpose() (*onnx.Tensor, error) {
	v := onnx.InRow(f.data().Dims)
	perm := f.n.AttrInts("perm")
	if perm == nil {
		for i := range v.Dims {
			perm = append(perm, int64(len(v.Dims)-1-i))
		}
	}
	return f.view(v.Transpose(perm))
}

func (f *folder) slice() (*onnx.Tensor, error) {
	t := f.data()
	starts, ok := f.integers(1)
	ends, ok2 := f.integers(2)
	if !ok || !ok2 || len(starts) != len(ends) {
		return nil, nil
	}
	axes, given := f.integers(3)
	steps, stepped := f.integers(4)
	if given && len(axes) != len(starts) || stepped && len(steps) != len(starts) {
		return nil, nil
	}
	v := onnx.InRow(t.Dims)
	for i := range starts {
		axis, by := int64(i), int64(1)
		if given {
			axis = axes[i]
		}
		if stepped {
			by = steps[i]
		}
		if axis < 0 {
			axis += int64(len(t.Dims))
		}
		if axis < 0 || axis >= int64(len(t.Dims)) || by == 0 || by > maxStep || by < -maxStep {
			return nil, nil
		}
		from, n := span(t.Dims[axis], starts[i], ends[i], by)
		if v, ok = v.Slice(int(axis), from, n, by); !ok {
			return nil, nil
		}
	}
	return f.view(v, true)
}

// span returns the first place of a slice along an axis, and how many there are.
func span(dim, start, end, step int64) (from, n int64) {
	place := func(x, least, greatest int64) int64 {
		if x < 0 {
			x += dim
		}
		return min(max(x, least), greatest)
	}
	if step > 0 {
		from, end = place(start, 0, dim), place(end, 0, dim)
		return from, max(0, (end-from+step-1)/step)
	}
	from = place(start, 0, dim-1)
	end = place(end, -1, dim-1)
	return from, max(0, (end-from+step+1)/step)
}

func (f *folder) gather() (*onnx.Tensor, error) {
	t := f.data()
	axis, ok := f.axis()
	at, known := f.integers(1)
	dims := f.dims(0)
	if !ok || !known || dims == nil || len(at) == 0 || len(at) > maxGathered {
		return nil, nil
	}
	whole := onnx.InRow(t.Dims)
	var places []*onnx.Tensor
	for _, i := range at {
		if i < 0 {
			i += t.Dims[axis]
		}
		v, err := f.view(whole.Slice(axis, i, 1, 1))
		if v == nil || err != nil {
			return nil, err
		}
		places = append(places, v)
	}
	all, err := onnx.Concat(f.name(), axis, places)
	if err != nil {
		return nil, err
	}
	return all.View(f.name(), dims, 0, nil)
}

func (f *folder) concat() (*onnx.Tensor, error) {
	axis, ok := f.axis()
	if !ok {
		return nil, nil
	}
	var list []*onnx.Tensor
	for _, k := range f.inputs {
		if k == nil {
			return nil, nil
		}
		list = append(list, k.tensor)
	}
	return onnx.Concat(f.name(), axis, list)
}

func (f *folder) split() ([]*onnx.Tensor, error) {
	t := f.data()
	axis, ok := f.axis()
	if !ok {
		return nil, nil
	}
	whole := onnx.InRow(t.Dims)
	var outs []*onnx.Tensor
	at := int64(0)
	for i := range f.n.Outputs {
		dims := f.dims(i)
		if len(dims) != len(t.Dims) {
			return nil, nil
		}
		v, err := f.view(whole.Slice(axis, at, dims[axis], 1))
		if v == nil || err != nil {
			return nil, err
		}
		at += dims[axis]
		outs = append(outs, v)
	}
	return outs, nil
}
