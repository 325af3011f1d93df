package gguf

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/internal/mmap"
)

// File is an open GGUF file.
type File struct {
	Path     string
	Version  uint32
	Metadata []KeyValue // in the file's order
	Tensors  []*Tensor  // in the file's order

	data    []byte
	release func() error
	values  map[string]any
	tensors map[string]*Tensor
}

// KeyValue is an entry of the metadata. The value is a uint8, int8, uint16, int16, uint32, int32, uint64, int64,
// float32, float64, bool or string, or a slice of one of these; []any is an array of arrays.
type KeyValue struct {
	Key   string
	Value any
}

// Open maps a GGUF file and reads its metadata and its list of tensors. Close it to release the mapping.
//
// It errs on files that are no GGUF, are of another version or byte order, are truncated, or contradict themselves; see
// the package comment. A file that is one of several opens, too: see OpenSplit.
func Open(path string) (*File, error) {
	data, release, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read GGUF file: %w", err)
	}
	f := &File{Path: path, data: data, release: release}
	if err := f.parse(); err != nil {
		release()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Close releases the mapping, and with it what Tensor.Bytes gave.
func (f *File) Close() error {
	if f.data == nil {
		return nil
	}
	f.data = nil
	return f.release()
}

// Tensor returns the tensor of that name, nil where there is none.
func (f *File) Tensor(name string) *Tensor { return f.tensors[name] }

// Value returns the metadata value of a key, nil where there is none; see KeyValue for its types.
func (f *File) Value(key string) any { return f.values[key] }

// Int returns the metadata value of a key whose value is an integer, of whatever type, that an int64 holds.
func (f *File) Int(key string) (n int64, ok bool) {
	switch v := f.values[key].(type) {
	case uint8:
		return int64(v), true
	case int8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= math.MaxInt64
	}
	return 0, false
}
