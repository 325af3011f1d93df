package onnx

import (
	"fmt"
	"github.com/mojo-patch/mojo-patch/onnx/internal/wire"
	"io"
	"slices"
)

// deferral computes the elements of a tensor on demand.
type deferral struct {
	write func(w io.Writer) error
	// read returns any range of them (NewComputed); nil if they can only be computed in order.
	read func(dst []byte, first int64) error
}

// NewDeferred makes a tensor whose elements write produces on demand, as little-endian packed bytes: each time they are
// read, and when the model is written. So converted weights need not be in memory together. write must produce the same
// bytes each time, of the size of t and dims, else the tensor cannot be read. NewDeferred returns an error for a type
// or dims without a size.
func NewDeferred(name string, t DataType, dims []int64, write func(w io.Writer) error) (*Tensor, error) {
	if _, err := byteSize(t, dims); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	return &Tensor{Name: name, DataType: t, Dims: append([]int64{}, dims...), deferred: &deferral{write: write}}, nil
}

// NewComputed is NewDeferred for elements that can be computed in any order. read fills dst, which holds whole
// elements, from element first on. So only the requested elements are in memory.
func NewComputed(name string, t DataType, dims []int64, read func(dst []byte, first int64) error) (*Tensor, error) {
	c, err := NewDeferred(name, t, dims, nil)
	if err != nil {
		return nil, err
	}
	width := int64(t.Bits() / 8)
	if width == 0 {
		return nil, fmt.Errorf("tensor %q: %s elements cannot be taken one by one", name, t)
	}
	c.deferred.read = read
	c.deferred.write = func(w io.Writer) error {
		buffer, n := make([]byte, min(c.Size(), streamChunk/width*width)), c.Len()
		for at := int64(0); at < n; {
			b := buffer[:min((n-at)*width, int64(len(buffer)))]
			if err := read(b, at); err != nil {
				return err
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
			at += int64(len(b)) / width
		}
		return nil
	}
	return c, nil
}

// IsComputed reports whether NewComputed made the tensor.
func (t *Tensor) IsComputed() bool { return t.deferred != nil && t.deferred.read != nil }

// ReadElements fills dst, which holds whole elements of at least one byte, from element first on, as little-endian
// bytes. It computes no other elements of assembled and computed tensors.
func (t *Tensor) ReadElements(dst []byte, first int64) error {
	if err := (&assembler{}).read(t, dst, first); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return nil
}

// IsStreamed reports whether an element can be read only by computing all: NewDeferred made the tensor, or a part of
// it.
func (t *Tensor) IsStreamed() bool {
	return slices.ContainsFunc(t.Sources(), func(s *Tensor) bool { return s.deferred != nil && s.deferred.read == nil })
}

// ReadsPieces reports whether ReadElements reads some elements without making all: those of a computed tensor, or of
// one assembled from such tensors, raw bytes and files.
func (t *Tensor) ReadsPieces() bool {
	if t.assembly == nil {
		return t.IsComputed()
	}
	return !slices.ContainsFunc(t.Sources(), func(s *Tensor) bool {
		return s.External == nil && s.raw == nil && !s.IsComputed()
	})
}

// Tied returns a tensor with another name and the same elements. A data file stores them once for both.
func (t *Tensor) Tied(name string) *Tensor {
	c := t.copy()
	c.Name = name
	return c
}

// writeDeferred writes the elements and checks their size.
func (t *Tensor) writeDeferred(w io.Writer) error {
	size := t.Size()
	c := &wire.CountingWriter{Writer: w, Left: size}
	if err := t.deferred.write(c); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if c.Left != 0 {
		return fmt.Errorf("tensor %q: %s%v takes %d bytes, but %d were written", t.Name, t.DataType, t.Dims, size,
			size-c.Left)
	}
	return nil
}
