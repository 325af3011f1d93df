package onnx

import (
	"fmt"
	"io"
)

// deferral returns the elements of a tensor when they are asked for.
type deferral struct {
	write func(w io.Writer) error
}

// NewDeferred makes a tensor whose elements write gives, as little-endian packed bytes: each time they are asked for,
// and when the model is written. So weights that are converted need not be in memory together. What write gives has to
// be the same each time, and of the size that t and dims say; otherwise the tensor is one that cannot be read. It errs
// on a type or dims without a size.
func NewDeferred(name string, t DataType, dims []int64, write func(w io.Writer) error) (*Tensor, error) {
	if _, err := byteSize(t, dims); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	return &Tensor{Name: name, DataType: t, Dims: append([]int64{}, dims...), deferred: &deferral{write}}, nil
}

// Tied makes a tensor of another name with the same elements. Those that lie in a data file, or are written to one, lie
// there once for both.
func (t *Tensor) Tied(name string) *Tensor {
	c := t.copy()
	c.Name = name
	return c
}

// writeDeferred writes the elements, and counts them.
func (t *Tensor) writeDeferred(w io.Writer) error {
	size := t.Size()
	c := &countingWriter{w: w, left: size}
	if err := t.deferred.write(c); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if c.left != 0 {
		return fmt.Errorf("tensor %q: %s%v takes %d bytes, %d were written", t.Name, t.DataType, t.Dims, size,
			size-c.left)
	}
	return nil
}

// countingWriter refuses bytes beyond those that are left.
type countingWriter struct {
	w    io.Writer
	left int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	if int64(len(b)) > c.left {
		return 0, fmt.Errorf("more bytes than its shape says: %d beyond its end", int64(len(b))-c.left)
	}
	n, err := c.w.Write(b)
	c.left -= int64(n)
	return n, err
}
