package gguf

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/internal/plain"
)

// ErrClosed is returned when elements are asked for after File.Close.
var ErrClosed = errors.New("the file is closed")

// Tensor is one tensor of a file. Its methods may be called at the same time.
type Tensor struct {
	Name string
	Type Type
	// Dims are the dimensions, outermost first as in PyTorch and ONNX: the weight of a linear layer is [out, in]. (The
	// file lists them innermost first.)
	Dims []int64

	file     *File
	elements int64
	start    int64 // of its bytes in the file
	size     int64
}

// Elements is the number of elements.
func (t *Tensor) Elements() int64 { return t.elements }

// Size is the number of bytes that the elements take in the file.
func (t *Tensor) Size() int64 { return t.size }

// File is the file that the tensor is in.
func (t *Tensor) File() *File { return t.file }

// Bytes returns the elements as they are stored: one by one in little-endian order as the type of ONNX that
// t.Type.DataType names, or in blocks of t.Type. They are part of the mapping: do not change them, nor use them after
// File.Close.
func (t *Tensor) Bytes() ([]byte, error) {
	if t.file.data == nil {
		return nil, t.errorf("%w", ErrClosed)
	}
	return t.file.data[t.start : t.start+t.size : t.start+t.size], nil
}

// Float32 returns len(dst) elements from element first on, in the order of row-major Dims, as float32. It errs where
// the range passes the tensor's end, and for types that cannot be read; see the package comment for how each is
// converted.
func (t *Tensor) Float32(dst []float32, first int64) error {
	if first < 0 || first > t.elements || int64(len(dst)) > t.elements-first {
		return t.errorf("elements %d to %d were asked for, it has %d", first, first+int64(len(dst)), t.elements)
	}
	if !t.Type.Readable() {
		return t.errorf("elements of type %s cannot be read: requantise the file, or convert it to F16 "+
			"(llama-quantize)", t.Type)
	}
	b, err := t.Bytes()
	if err != nil {
		return err
	}
	info := types[t.Type]
	if read := plain.ReaderOf(info.stored); read != nil {
		read(dst, b[first*int64(info.size):])
		return nil
	}
	block, size := int64(info.block), int64(info.size)
	b = b[first/block*size:]
	var whole [256]float32
	if skip := first % block; skip != 0 {
		info.decode(whole[:block], b[:size])
		dst, b = dst[copy(dst, whole[skip:block]):], b[size:]
	}
	for ; int64(len(dst)) >= block; dst, b = dst[block:], b[size:] {
		info.decode(dst[:block], b[:size])
	}
	if len(dst) > 0 {
		info.decode(whole[:block], b[:size])
		copy(dst, whole[:])
	}
	return nil
}

func (t *Tensor) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: tensor %q: %w", t.file.Path, t.Name, fmt.Errorf(format, args...))
}
