package gguf

import (
	"math"

	"github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"
)

// File is an open GGUF file: its path, its tensors in the file's order, and these.
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
// It errs on files that are no GGUF, are of another version or byte order, are truncated, or contradict themselves; see
// the package comment. A file that is one of several opens, too: see OpenSplit.
func Open(path string) (*File, error) {
	f := &File{}
	if err := tensors.Open(&f.File, path, "GGUF", f.parse); err != nil {
		return nil, err
	}
	return f, nil
}

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
