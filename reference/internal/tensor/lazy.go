package tensor

import (
	"fmt"
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
)

// reader returns elements of a floating-point tensor that is not in memory.
type reader interface {
	// read fills dst with the elements at offset, offset+stride, …
	read(dst []float64, offset, stride int) error
}

// view is the content of a lazy tensor: a sequence of matrices from sources. Ops that move elements make another view,
// and a product reads one matrix at a time, so that the experts of a mixture can be gathered, split and transposed
// without holding them.
type view struct {
	lead   []int // dimensions that count blocks
	inner  []int // dimensions of each block
	blocks []block
}

// block is a part of a source.
type block struct {
	src     reader
	offset  int
	strides []int // of the inner dimensions
}

const (
	// eagerElements is the size up to which a tensor is not made lazy.
	eagerElements = 1 << 16
	// maxBlocks bounds the blocks of a view.
	maxBlocks = 1 << 16
)

// NewLazy makes a tensor of a floating-point type whose elements are read on demand, by their offset in row-major
// order. The values of read must be representable in the type, and the same each time.
func NewLazy(t onnx.DataType, shape []int, read func(dst []float64, offset int) error) (*Tensor, error) {
	if !IsFloatType(t) {
		return nil, fmt.Errorf("a lazy tensor of %s: only float tensors can be lazy", t)
	}
	if err := BoundShape(shape, MaxLazy); err != nil {
		return nil, err
	}
	return lazily(t, shape, &computed{read}), nil
}

// LazyFromONNX is FromONNX for a float tensor whose elements are decoded on demand. It decodes a small tensor at once.
func LazyFromONNX(t *onnx.Tensor) (*Tensor, error) {
	if !IsFloatType(t.DataType) || t.DataType.Bits() < 8 || t.Len() <= eagerElements {
		return FromONNX(t)
	}
	shape := ToInts(t.Dims)
	if err := BoundShape(shape, MaxLazy); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	src := &encoded{tensor: t, pieces: t.ReadsPieces()}
	if !src.pieces {
		var err error
		if src.bytes, err = t.Bytes(); err != nil {
			return nil, err
		}
	}
	return lazily(t.DataType, shape, src), nil
}

// Deferred is LazyFromONNX without reading anything before an op reads elements, even of a small tensor.
func Deferred(t *onnx.Tensor) (*Tensor, error) {
	shape := ToInts(t.Dims)
	if err := BoundShape(shape, MaxLazy); err != nil || !IsFloatType(t.DataType) || t.DataType.Bits() < 8 {
		return nil, fmt.Errorf("tensor %q cannot be lazy: %s%v", t.Name, t.DataType, t.Dims)
	}
	return lazily(t.DataType, shape, &encoded{tensor: t, pieces: t.ReadsPieces()}), nil
}

// IsLazy reports whether the elements are read on demand: for NewLazy, LazyFromONNX, and results of ops that move
// elements of such a tensor.
func (t *Tensor) IsLazy() bool { return t != nil && t.lazy != nil }

// Read fills dst with the elements of a float tensor at offset, offset+step, … in row-major order.
func (t *Tensor) Read(dst []float64, offset, step int) error {
	if t.lazy != nil {
		return t.lazy.read(dst, offset, step)
	}
	return (&dense{t.F}).read(dst, offset, step)
}

func lazily(t onnx.DataType, shape []int, src reader) *Tensor { return viewed(t, fresh(shape, src)) }

// viewed makes a tensor of a view.
func viewed(t onnx.DataType, v *view) *Tensor {
	return &Tensor{DataType: t, Shape: v.shape(), lazy: v}
}

// fresh returns the view of a whole source in row-major order.
func fresh(shape []int, src reader) *view {
	v := &view{inner: shape, blocks: []block{{src, 0, onnx.RowMajor(shape)}}}
	return v.tidy()
}

func (v *view) shape() []int { return slices.Concat(v.lead, v.inner) }

// view returns the view of a tensor, also of a dense one.
func (t *Tensor) view() *view {
	if t.lazy != nil {
		return t.lazy
	}
	return fresh(t.Shape, &dense{t.F})
}

// push makes the first inner dimension count blocks. It returns false if there would be too many.
func (v *view) push() (*view, bool) {
	if len(v.inner) == 0 || len(v.blocks)*v.inner[0] > maxBlocks {
		return v, false
	}
	n := v.inner[0]
	r := &view{lead: append(slices.Clip(v.lead), n), inner: v.inner[1:], blocks: make([]block, 0, len(v.blocks)*n)}
	for _, b := range v.blocks {
		for i := range n {
			r.blocks = append(r.blocks, block{b.src, b.offset + i*b.strides[0], b.strides[1:]})
		}
	}
	return r, true
}

// pushTo makes at least n dimensions count blocks. It returns false if there would be too many blocks.
func (v *view) pushTo(n int) (*view, bool) {
	ok := true
	for len(v.lead) < n && ok {
		v, ok = v.push()
	}
	return v, ok
}

// tidy leaves only the last two dimensions inside the blocks, if possible.
func (v *view) tidy() *view {
	for len(v.inner) > 2 {
		r, ok := v.push()
		if !ok {
			break
		}
		v = r
	}
	return v
}

// whole returns the view as one block. It returns false if its blocks are not regularly spaced.
func (v *view) whole() (*view, bool) {
	if len(v.lead) == 0 {
		return v, true
	}
	if len(v.blocks) == 0 {
		return nil, false
	}
	first := v.blocks[0]
	step := 0
	for i, b := range v.blocks {
		if i == 1 {
			step = b.offset - first.offset
		}
		if b.src != first.src || b.offset != first.offset+i*step || !slices.Equal(b.strides, first.strides) {
			return nil, false
		}
	}
	st := onnx.RowMajor(v.lead)
	for i := range st {
		st[i] *= step
	}
	return &view{inner: v.shape(), blocks: []block{{first.src, first.offset, append(st, first.strides...)}}}, true
}

// pick takes the blocks at these places.
func (v *view) pick(lead []int, places []int) *view {
	return &view{lead: lead, inner: v.inner, blocks: takeSlice(v.blocks, places)}
}

// read makes a view a source of its elements in row-major order.
func (v *view) read(dst []float64, offset, stride int) error {
	if stride < 1 && len(dst) > 1 {
		return oneByOne(v, dst, offset, stride)
	}
	n, stride := Size(v.inner), max(stride, 1)
	for i := 0; i < len(dst); {
		b, at := &v.blocks[offset/n], offset%n
		row := 1
		if len(v.inner) > 0 {
			row = v.inner[len(v.inner)-1]
		}
		place, rest := b.offset, at
		for axis := len(v.inner) - 1; axis >= 0; axis-- {
			place += rest % v.inner[axis] * b.strides[axis]
			rest /= v.inner[axis]
		}
		count, step := 1, 0
		if len(v.inner) > 0 {
			count, step = (row-at%row+stride-1)/stride, stride*b.strides[len(v.inner)-1]
		}
		count = min(count, len(dst)-i)
		if err := b.src.read(dst[i:i+count], place, step); err != nil {
			return err
		}
		i, offset = i+count, offset+count*stride
	}
	return nil
}

// oneByOne reads backwards, or the same element repeatedly.
func oneByOne(src reader, dst []float64, offset, stride int) error {
	for i := range dst {
		if err := src.read(dst[i:i+1], offset+i*stride, 1); err != nil {
			return err
		}
	}
	return nil
}

// Dense returns the tensor with all its elements, or t itself if it is not lazy.
func (t *Tensor) Dense() (*Tensor, error) {
	if t == nil || t.lazy == nil {
		return t, nil
	}
	if err := CheckShape(t.Shape); err != nil {
		return nil, err
	}
	r := &Tensor{DataType: t.DataType, Shape: t.Shape, F: make([]float64, Size(t.Shape))}
	if err := t.lazy.read(r.F, 0, 1); err != nil {
		return nil, err
	}
	return r, nil
}

// AllDense makes every tensor dense.
func AllDense(list []*Tensor) ([]*Tensor, error) {
	out, copied := list, false
	for i, t := range list {
		d, err := t.Dense()
		if err != nil {
			return nil, err
		}
		if d != t {
			if !copied {
				out, copied = slices.Clone(list), true
			}
			out[i] = d
		}
	}
	return out, nil
}

// encoded is the bytes of a stored tensor.
type encoded struct {
	tensor *onnx.Tensor
	pieces bool   // the tensor reads its elements piece by piece
	bytes  []byte // else all of them; nil until they are read
}

// pieceBuffers keeps buffers of bytes: large matrices are read row by row.
var pieceBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (s *encoded) read(dst []float64, offset, stride int) error {
	typ := s.tensor.DataType
	w := typ.Bits() / 8
	if len(dst) == 0 {
		return nil
	}
	if s.pieces {
		if stride != 1 && len(dst) > 1 {
			return oneByOne(s, dst, offset, stride)
		}
		buffer := pieceBuffers.Get().(*[]byte)
		defer pieceBuffers.Put(buffer)
		*buffer = slices.Grow((*buffer)[:0], len(dst)*w)[:len(dst)*w]
		if err := s.tensor.ReadElements(*buffer, int64(offset)); err != nil {
			return err
		}
		elements.DecodeFloats(dst, *buffer, typ)
		return nil
	}
	if s.bytes == nil {
		var err error
		if s.bytes, err = s.tensor.Bytes(); err != nil {
			return err
		}
	}
	if last := offset + (len(dst)-1)*stride; offset < 0 || last < 0 || (max(offset, last)+1)*w > len(s.bytes) {
		return fmt.Errorf("elements %d to %d are outside a tensor of %d bytes", offset, last, len(s.bytes))
	}
	if stride == 1 {
		elements.DecodeFloats(dst, s.bytes[offset*w:], typ)
		return nil
	}
	for i := range dst {
		elements.DecodeFloats(dst[i:i+1], s.bytes[(offset+i*stride)*w:], typ)
	}
	return nil
}

// computed is elements computed by a function.
type computed struct {
	f func(dst []float64, offset int) error
}

func (s *computed) read(dst []float64, offset, stride int) error {
	if stride == 1 {
		return s.f(dst, offset)
	}
	return oneByOne(s, dst, offset, stride)
}

// dense is elements in memory.
type dense struct{ v []float64 }

func (s *dense) read(dst []float64, offset, stride int) error {
	if stride == 1 {
		copy(dst, s.v[offset:offset+len(dst)])
		return nil
	}
	for i := range dst {
		dst[i] = s.v[offset+i*stride]
	}
	return nil
}

// rounded is elements rounded to a type.
type rounded struct {
	src reader
	to  onnx.DataType
}

func (s *rounded) read(dst []float64, offset, stride int) error {
	if err := s.src.read(dst, offset, stride); err != nil {
		return err
	}
	elements.RoundAll(s.to, dst)
	return nil
}
