package safetensors

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
	Dims []int64 // outermost first, as in PyTorch and ONNX

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

// Bytes returns the elements as they are stored, in little-endian order. They are part of the mapping: do not change
// them, nor use them after File.Close.
func (t *Tensor) Bytes() ([]byte, error) {
	if t.file.data == nil {
		return nil, t.errorf("%w", ErrClosed)
	}
	return t.file.data[t.start : t.start+t.size : t.start+t.size], nil
}

// Float32 returns len(dst) elements from element first on, in the order of row-major Dims, as float32. Integers and F64
// are rounded to the nearest float32, ties to even; other floats are exact; a boolean is 0 or 1. It errs where the
// range passes the tensor's end, and for types that cannot be read.
func (t *Tensor) Float32(dst []float32, first int64) error {
	if first < 0 || first > t.elements || int64(len(dst)) > t.elements-first {
		return t.errorf("elements %d to %d were asked for, it has %d", first, first+int64(len(dst)), t.elements)
	}
	read := readerOf(t.Type)
	if read == nil {
		return t.errorf("elements of type %s cannot be read as float32", t.Type)
	}
	b, err := t.Bytes()
	if err != nil {
		return err
	}
	read(dst, b[first*int64(t.Type.DataType().Bits()/8):])
	return nil
}

func readerOf(t Type) plain.Reader { return plain.ReaderOf(t.DataType()) }

func (t *Tensor) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: tensor %q: %w", t.file.Path, t.Name, fmt.Errorf(format, args...))
}
