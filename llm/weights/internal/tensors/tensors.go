// Package tensors implements the common part of weight files: a mapping, tensors by name, and their mapped elements.
package tensors

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/internal/mmap"
)

// ErrClosed is returned when elements are read after File.Close.
var ErrClosed = errors.New("the file is closed")

// mapping is a file in memory.
type mapping struct {
	path    string
	data    []byte
	release func() error
}

// File is an open weight file. T is its tensor type.
type File[T any] struct {
	Path    string
	Tensors []T

	mapping *mapping
	byName  map[string]T
	names   []string
}

// Open maps a file and calls parse to read it. format names the expected format in errors.
func Open[T any](f *File[T], path, format string, parse func() error) error {
	data, release, err := mmap.Open(path)
	if err != nil {
		return fmt.Errorf("cannot read %s file: %w", format, err)
	}
	return Parse(f, path, data, release, parse)
}

// Parse is Open for a file that is already mapped. release releases the mapping.
func Parse[T any](f *File[T], path string, data []byte, release func() error, parse func() error) (err error) {
	f.Path, f.mapping, f.byName = path, &mapping{path, data, release}, map[string]T{}
	if bytes.HasPrefix(data, []byte("version https://git-lfs")) {
		err = errors.New("this is a Git LFS pointer, not the weights: fetch the file itself (git lfs pull)")
	} else {
		err = parse()
	}
	if err != nil {
		release()
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Data returns the whole file, nil after Close.
func Data[T any](f *File[T]) []byte { return f.mapping.data }

// Close releases the mapping, and with it the results of Tensor.Bytes.
func (f *File[T]) Close() error {
	if f.mapping.data == nil {
		return nil
	}
	f.mapping.data = nil
	return f.mapping.release()
}

// Tensor returns the tensor with this name, or the zero value.
func (f *File[T]) Tensor(name string) T { return f.byName[name] }

// Add adds a tensor to the file. t is the part that the tensors of all formats share.
func Add[T any](f *File[T], tensor T, t *Tensor) {
	t.mapping = f.mapping
	f.byName[t.Name] = tensor
	f.Tensors, f.names = append(f.Tensors, tensor), append(f.names, t.Name)
}

// Tensor is one tensor of a file. Its methods may be called concurrently.
type Tensor struct {
	Name string
	// Dims are the dimensions, outermost first as in PyTorch and ONNX: the weight of a linear layer is [out, in].
	Dims     []int64
	Elements int64 // the product of Dims
	Start    int64 // of the elements in the file
	Size     int64 // of the elements in the file, in bytes
	// Format is the storage format of the elements. Unreadable is the reason if they cannot be decoded.
	Format     *blocks.Format
	Unreadable string

	mapping *mapping
}

// Bytes returns the elements as stored. They are part of the mapping: do not change them, or use them after File.Close.
func (t *Tensor) Bytes() ([]byte, error) {
	if t.mapping.data == nil {
		return nil, t.errorf("%w", ErrClosed)
	}
	return t.mapping.data[t.Start : t.Start+t.Size : t.Start+t.Size], nil
}

// Float32 sets dst to the elements from element first on, in row-major order. Integers and float64 are rounded to
// nearest even; other floats are exact; a boolean is 0 or 1. It returns an error if the range passes the tensor's end
// or the type cannot be read.
func (t *Tensor) Float32(dst []float32, first int64) error {
	if first < 0 || first > t.Elements || int64(len(dst)) > t.Elements-first {
		return t.errorf("cannot read elements %d to %d of %d", first, first+int64(len(dst)), t.Elements)
	}
	if !t.Format.Readable() {
		return t.errorf("%s", t.Unreadable)
	}
	b, err := t.Bytes()
	if err != nil {
		return err
	}
	t.Format.Decode(dst, b, first)
	return nil
}

func (t *Tensor) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: tensor %q: %w", t.mapping.path, t.Name, fmt.Errorf(format, args...))
}

// Part is one of several files of a model: a type that embeds File.
type Part interface {
	Close() error
	list() (path string, names []string)
}

func (f *File[T]) list() (path string, names []string) { return f.Path, f.names }

// OpenParts opens files and calls check on them. It closes all files and returns an error if some are missing (the text
// missing introduces their names), or if two files have a tensor of the same name.
func OpenParts[P Part](names []string, missing string, open func(name string) (P, error),
	check func([]P) error) (parts []P, err error) {
	defer func() {
		if err != nil {
			for _, part := range parts {
				part.Close()
			}
			parts = nil
		}
	}()
	var absent []string
	for _, name := range names {
		part, err := open(name)
		if errors.Is(err, fs.ErrNotExist) {
			if absent = append(absent, name); len(absent) == 10 {
				break
			}
			continue
		} else if err != nil {
			return parts, err
		}
		parts = append(parts, part)
	}
	if absent != nil {
		return parts, fmt.Errorf("%s missing in its folder (%s): %w", missing, strings.Join(absent, ", "),
			fs.ErrNotExist)
	}
	if err := check(parts); err != nil {
		return parts, err
	}
	in := map[string]string{}
	for _, part := range parts {
		path, names := part.list()
		for _, name := range names {
			if other, ok := in[name]; ok {
				return parts, fmt.Errorf("%s: tensor %q is also in %s", path, name, other)
			}
			in[name] = path
		}
	}
	return parts, nil
}
