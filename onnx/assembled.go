package onnx

import (
	"fmt"
	"slices"
	"sort"
)

// assembly describes a tensor whose elements come from other tensors: parts side by side along one axis. Nothing is
// copied before the tensor is written, and then in small chunks, so that weights larger than memory can be stacked. The
// sources stay readable while their model is open, even if their graph has dropped them.
type assembly struct {
	axis  int
	parts []part
}

// part is one of the parts: a strided view of a tensor.
type part struct {
	from    *Tensor
	start   int64   // its start along the assembly's axis
	dims    []int64 // its size along each axis
	offset  int64   // the first element in from
	strides []int64 // the distance in from between neighbors along each axis
	outer   int     // the axes from here on are contiguous in from
	run     int64   // the number of elements of a contiguous run
}

// beginsOf returns the deferred tensor whose first elements t is a view of, or nil.
func (t *Tensor) beginsOf() *Tensor {
	if t.assembly == nil || len(t.assembly.parts) != 1 {
		return nil
	}
	if p := t.assembly.parts[0]; p.outer == 0 && p.offset == 0 && p.from.deferred != nil {
		return p.from
	}
	return nil
}

// copiedUpTo is the size in bytes up to which an assembled tensor is built at once.
const copiedUpTo = 1024

// View makes a tensor of these dims from elements of t. Its first element is element offset of t, and strides are the
// distances between neighbors along each axis, in elements (negative: backwards). Nil strides mean contiguous
// elements, which makes a reshaped slice. The elements are read from t on demand, or when the tensor is written.
func (t *Tensor) View(name string, dims []int64, offset int64, strides []int64) (*Tensor, error) {
	p, err := newPart(t, dims, offset, strides)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: a view of %q: %w", name, t.Name, err)
	}
	return assemble(name, t.DataType, dims, &assembly{parts: []part{p}})
}

// Concat joins tensors along an axis. They must have the same type, and the same dims except along the axis. Their
// elements are read on demand, or when the tensor is written.
func Concat(name string, axis int, tensors []*Tensor) (*Tensor, error) {
	if len(tensors) == 0 {
		return nil, fmt.Errorf("tensor %q: nothing to put together", name)
	}
	first := tensors[0]
	if axis < 0 || axis >= len(first.Dims) {
		return nil, fmt.Errorf("tensor %q: %v has no axis %d", name, first.Dims, axis)
	}
	dims := append([]int64(nil), first.Dims...)
	dims[axis] = 0
	a := &assembly{axis: axis}
	for _, t := range tensors {
		if t.DataType != first.DataType {
			return nil, fmt.Errorf("tensor %q: %q is %s, %q is %s", name, first.Name, first.DataType, t.Name,
				t.DataType)
		}
		for i := range dims {
			if len(t.Dims) != len(dims) || i != axis && t.Dims[i] != dims[i] {
				return nil, fmt.Errorf("tensor %q: %q is %v, which does not fit beside %q, which is %v, along axis %d",
					name, t.Name, t.Dims, first.Name, first.Dims, axis)
			}
		}
		p, err := newPart(t, t.Dims, 0, nil)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %q: %w", name, t.Name, err)
		}
		p.start = dims[axis]
		dims[axis] += t.Dims[axis]
		if t.Dims[axis] > 0 {
			a.parts = append(a.parts, p)
		}
	}
	return assemble(name, first.DataType, dims, a)
}

// Lengthened returns the tensor extended with zeros along an axis to n there. It returns t if t is already as long.
func (t *Tensor) Lengthened(axis int, n int64) (*Tensor, error) {
	if axis >= 0 && axis < len(t.Dims) && t.Dims[axis] >= n {
		return t, nil
	}
	dims := slices.Clone(t.Dims)
	if axis >= 0 && axis < len(dims) {
		dims[axis] = n - dims[axis]
	}
	zeros, err := NewTensor(t.Name, t.DataType, dims, make([]byte, (&Tensor{DataType: t.DataType, Dims: dims}).Size()))
	if err != nil {
		return nil, err
	}
	return Concat(t.Name, axis, []*Tensor{t, zeros})
}

// assemble makes the tensor, and reads its elements at once if it is small.
func assemble(name string, t DataType, dims []int64, a *assembly) (*Tensor, error) {
	r := &Tensor{Name: name, DataType: t, Dims: append([]int64{}, dims...), assembly: a}
	size, err := byteSize(t, dims)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	if size > copiedUpTo {
		return r, nil
	}
	b, err := r.Bytes()
	if err != nil {
		return nil, err
	}
	return NewTensor(name, t, r.Dims, b)
}

// newPart checks a view and finds its contiguous runs.
func newPart(t *Tensor, dims []int64, offset int64, strides []int64) (part, error) {
	if bits := t.DataType.Bits(); bits == 0 || bits%8 != 0 {
		return part{}, fmt.Errorf("%s elements cannot be taken one by one", t.DataType)
	}
	n, err := elementCount(dims)
	if err != nil {
		return part{}, err
	}
	have, err := elementCount(t.Dims)
	if err != nil {
		return part{}, err
	}
	row := RowMajor(dims)
	if strides == nil {
		strides = row
	}
	if len(strides) != len(dims) {
		return part{}, fmt.Errorf("%d strides for %d axes", len(strides), len(dims))
	}
	if n > 0 {
		if err := within(have, dims, offset, strides); err != nil {
			return part{}, err
		}
	}
	p := part{from: t, dims: append([]int64{}, dims...), offset: offset, strides: strides, outer: len(dims), run: 1}
	for p.outer > 0 && (dims[p.outer-1] <= 1 || strides[p.outer-1] == p.run) {
		p.outer--
		p.run *= dims[p.outer]
	}
	// the source is one contiguous run itself
	for a := p.from.assembly; a != nil && len(a.parts) == 1 && a.parts[0].outer == 0; a = p.from.assembly {
		p.from, p.offset = a.parts[0].from, p.offset+a.parts[0].offset
	}
	return p, nil
}

// within checks that a view reads only elements 0 to have-1.
func within(have int64, dims []int64, offset int64, strides []int64) error {
	least, greatest := offset, offset
	for i, d := range dims {
		s := strides[i]
		if d <= 1 || s == 0 {
			continue
		}
		if s <= -have || s >= have || d-1 > (have-1)/max(s, -s) {
			return fmt.Errorf("%v elements at strides %v are more than the %d there are", dims, strides, have)
		}
		if s > 0 {
			greatest += (d - 1) * s
		} else {
			least += (d - 1) * s
		}
	}
	if least < 0 || greatest >= have {
		return fmt.Errorf("it reads the elements %d to %d of %d", least, greatest, have)
	}
	return nil
}

// Sources lists the tensors that hold the elements of an assembled tensor, each once. It is t itself if t is not
// assembled.
func (t *Tensor) Sources() []*Tensor {
	if t.assembly == nil {
		return []*Tensor{t}
	}
	var list []*Tensor
	seen := map[*Tensor]bool{}
	var add func(t *Tensor)
	add = func(t *Tensor) {
		if seen[t] {
			return
		}
		seen[t] = true
		if t.assembly == nil {
			list = append(list, t)
			return
		}
		for i := range t.assembly.parts {
			add(t.assembly.parts[i].from)
		}
	}
	add(t)
	return list
}

// Place returns the tensor that holds element i of an assembled tensor, and the element's index there. It returns t and
// i if t is not assembled.
func (t *Tensor) Place(i int64) (*Tensor, int64) {
	for a := t.assembly; a != nil; a = t.assembly {
		p := &a.parts[0]
		if len(a.parts) > 1 {
			inner := int64(1)
			for _, d := range t.Dims[a.axis+1:] {
				inner *= d
			}
			row := t.Dims[a.axis] * inner
			outer, rest := i/row, i%row
			p = &a.parts[sort.Search(len(a.parts), func(i int) bool { return a.parts[i].start*inner > rest })-1]
			i = outer*p.dims[a.axis]*inner + rest - p.start*inner
		}
		at := p.offset
		for axis, n := range slices.Backward(p.dims) {
			at += i % n * p.strides[axis]
			i /= n
		}
		t, i = p.from, at
	}
	return t, i
}

// isFromFiles reports whether elements of an assembled tensor are in a file of external data.
func (t *Tensor) isFromFiles() bool {
	if t.assembly == nil {
		return false
	}
	for _, s := range t.Sources() {
		if s.External != nil {
			return true
		}
	}
	return false
}

// isMade reports whether the elements are computed on demand: from other tensors, or deferred.
func (t *Tensor) isMade() bool { return t.assembly != nil || t.deferred != nil }
