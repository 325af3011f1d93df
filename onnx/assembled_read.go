package onnx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"
)

// streamChunk is the number of bytes that are assembled at a time.
const streamChunk = 256 << 10

// WriteElements writes the elements as little-endian packed bytes. It writes assembled and deferred tensors as they are
// computed, without holding all elements in memory. It returns the errors of Bytes and of w.
func (t *Tensor) WriteElements(w io.Writer) error {
	if t.deferred != nil {
		return t.writeDeferred(w)
	}
	if t.assembly == nil {
		b, err := t.Bytes()
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	}
	width := int64(t.DataType.Bits() / 8)
	n := t.Size()
	if n < 0 {
		return fmt.Errorf("tensor %q: %s%v has no size", t.Name, t.DataType, t.Dims)
	}
	buffer := make([]byte, min(n, streamChunk/width*width))
	r := &assembler{}
	for at := int64(0); at < n; {
		b := buffer[:min(n-at, int64(len(buffer)))]
		if err := r.read(t, b, at/width); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		at += int64(len(b))
	}
	return nil
}

// madeBytes computes all elements of an assembled or deferred tensor at once.
func (t *Tensor) madeBytes() ([]byte, error) {
	n := t.Size()
	if n < 0 || int64(int(n)) != n {
		return nil, fmt.Errorf("tensor %q: %s%v does not fit into memory", t.Name, t.DataType, t.Dims)
	}
	b := bytes.NewBuffer(make([]byte, 0, n))
	if err := t.WriteElements(b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// assembler reads elements of assembled tensors. Sources with elements in typed fields must be converted whole. The
// last few conversions are kept, because parts of several sources may alternate.
type assembler struct {
	converted []converted
}

type converted struct {
	t *Tensor
	b []byte
}

const keptConverted = 4

// source returns the elements of a tensor that is not assembled.
func (r *assembler) source(t *Tensor) ([]byte, error) {
	if t.External != nil || t.raw != nil {
		return t.Bytes()
	}
	for _, c := range r.converted {
		if c.t == t {
			return c.b, nil
		}
	}
	b, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	if len(r.converted) == keptConverted {
		r.converted = r.converted[1:]
	}
	r.converted = append(r.converted, converted{t, b})
	return b, nil
}

var errShort = errors.New("its elements are fewer than its shape says")

// read fills b with the elements of t from element at on.
func (r *assembler) read(t *Tensor, b []byte, at int64) error {
	if len(b) == 0 {
		return nil
	}
	if t.IsComputed() {
		return t.deferred.read(b, at)
	}
	width := int64(t.DataType.Bits() / 8)
	if t.assembly == nil {
		src, err := r.source(t)
		if err != nil {
			return err
		}
		if int64(len(src)) < at*width+int64(len(b)) {
			return fmt.Errorf("tensor %q: %w", t.Name, errShort)
		}
		copy(b, src[at*width:])
		return nil
	}
	a := t.assembly
	if len(a.parts) == 1 {
		return a.parts[0].read(r, width, b, at)
	}
	inner := int64(1)
	for _, d := range t.Dims[a.axis+1:] {
		inner *= d
	}
	row := t.Dims[a.axis] * inner
	for len(b) > 0 {
		outer, rest := at/row, at%row
		p := &a.parts[sort.Search(len(a.parts), func(i int) bool { return a.parts[i].start*inner > rest })-1]
		size := p.dims[a.axis] * inner
		n := min(int64(len(b))/width, p.start*inner+size-rest)
		if err := p.read(r, width, b[:n*width], outer*size+rest-p.start*inner); err != nil {
			return err
		}
		b, at = b[n*width:], at+n
	}
	return nil
}

// read fills b with the elements of the part from element at on, run by run.
func (p *part) read(r *assembler, width int64, b []byte, at int64) error {
	if p.outer == 0 {
		return r.read(p.from, b, p.offset+at)
	}
	var few [8]int64
	index := few[:0]
	if p.outer > len(few) {
		index = make([]int64, 0, p.outer)
	}
	index = index[:p.outer]
	from, k := p.offset, at/p.run
	for i := p.outer - 1; i >= 0; i-- {
		index[i] = k % p.dims[i]
		k /= p.dims[i]
		from += index[i] * p.strides[i]
	}
	var src []byte
	if p.from.assembly == nil && !p.from.IsComputed() {
		var err error
		if src, err = r.source(p.from); err != nil {
			return err
		}
		if int64(len(src)) < p.from.Size() {
			return fmt.Errorf("tensor %q: %w", p.from.Name, errShort)
		}
	}
	for skip := at % p.run; len(b) > 0; skip = 0 {
		n := min(p.run-skip, int64(len(b))/width)
		if src != nil {
			copy(b[:n*width], src[(from+skip)*width:])
		} else if err := r.read(p.from, b[:n*width], from+skip); err != nil {
			return err
		}
		b = b[n*width:]
		for i := p.outer - 1; i >= 0; i-- {
			from += p.strides[i]
			if index[i]++; index[i] < p.dims[i] {
				break
			}
			from -= p.dims[i] * p.strides[i]
			index[i] = 0
		}
	}
	return nil
}
