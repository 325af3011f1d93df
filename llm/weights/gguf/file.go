package gguf

import (
	"math"

	"github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"
)

// File is an open GGUF file with its path, and its tensors and metadata in the file's order.
type File struct {
	tensors.File[*Tensor]
	Version  uint32
	Metadata []KeyValue // in the file's order

	values map[string]any
}

// KeyValue is an entry of the metadata. The value is a uint8, int8, uint16, int16, uint32, int32, uint64, int64,
// float32, float64, bool or string, or a slice of one of these; []any is an array of arrays.
type KeyValue struct {
	Key   string
	Value any
}

// Open maps a GGUF file and reads its metadata and its list of tensors. Close it to release the mapping.
//
// It returns an error for a file that is not GGUF, has another version or byte order, is truncated, or contradicts
// itself; see the package comment. It also opens one part of a split file; see OpenSplit.
func Open(path string) (*File, error) {
	f := &File{}
	if err := tensors.Open(&f.File, path, "GGUF", f.parse); err != nil {
		return nil, err
	}
	return f, nil
}

// Value returns the metadata value of a key, or nil; see KeyValue for its types.
func (f *File) Value(key string) any { return f.values[key] }

// Int returns the metadata value of a key if it is an integer of any type that fits int64.
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
