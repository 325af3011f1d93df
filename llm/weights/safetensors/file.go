package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/mmap"
)

// maxHeader is the format's limit for the header.
const maxHeader = 100_000_000

// File is an open safetensors file.
type File struct {
	Path     string
	Metadata map[string]string // "__metadata__"; nil where there is none
	Tensors  []*Tensor         // in the order of their bytes

	data    []byte
	release func() error
	tensors map[string]*Tensor
}

// Open maps a safetensors file and reads its header. Close it to release the mapping.
//
// It errs on files that are no safetensors, are truncated, or break the format's rules; see the package comment.
func Open(path string) (*File, error) {
	data, release, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read safetensors file: %w", err)
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

// parse reads the header: its length in 8 bytes, then JSON. Elements follow.
func (f *File) parse() error {
	if bytes.HasPrefix(f.data, []byte("version https://git-lfs")) {
		return errors.New("this is a Git LFS pointer, not the weights: fetch the file itself (git lfs pull)")
	}
	if len(f.data) < 8 {
		return fmt.Errorf("this is no safetensors file: it has %d bytes, not even the 8 of the header's length",
			len(f.data))
	}
	n := binary.LittleEndian.Uint64(f.data)
	switch {
	case n > maxHeader:
		return fmt.Errorf("this is no safetensors file: its first 8 bytes say that the header has %d bytes, the "+
			"format allows %d", n, maxHeader)
	case n > uint64(len(f.data)-8):
		return fmt.Errorf("it says that its header has %d bytes, but only %d follow: it is truncated, or no "+
			"safetensors file", n, len(f.data)-8)
	}
	header := f.data[8 : 8+n]
	if !bytes.HasPrefix(header, []byte("{")) {
		return errors.New(`this is no safetensors file: its header does not begin with "{"`)
	}
	if err := f.readHeader(header); err != nil {
		return fmt.Errorf("the header: %w", err)
	}
	return f.place(8 + int64(n))
}

// place puts the tensors in the order of their bytes, which must follow each other and fill the file.
func (f *File) place(begin int64) error {
	slices.SortFunc(f.Tensors, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.size, b.size), cmp.Compare(a.Name, b.Name))
	})
	size, end := int64(len(f.data))-begin, int64(0)
	for i, t := range f.Tensors {
		switch {
		case t.start < end:
			return fmt.Errorf("tensors %q and %q overlap: the file is damaged", f.Tensors[i-1].Name, t.Name)
		case t.start > end:
			return fmt.Errorf("bytes %d to %d, before tensor %q, belong to no tensor: the file is damaged", end,
				t.start, t.Name)
		case t.size > size-t.start:
			return fmt.Errorf("tensor %q (%s %d, bytes %d to %d of the elements) lies past the end of the file, "+
				"which holds %d bytes of elements: it is truncated or damaged",
				t.Name, t.Type, t.Dims, t.start, t.start+t.size, size)
		}
		end = t.start + t.size
		t.start += begin
	}
	if end != size {
		return fmt.Errorf("its last %d bytes belong to no tensor: the file is damaged", size-end)
	}
	return nil
}
