package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"
)

// maxHeader is the format's limit for the header.
const maxHeader = 100_000_000

// File is an open safetensors file with its path, its tensors in byte order, and its metadata.
type File struct {
	tensors.File[*Tensor]
	Metadata map[string]string // "__metadata__", nil if absent
}

// Open maps a safetensors file and reads its header. Close it to release the mapping.
//
// It returns an error for a file that is not safetensors, is truncated, or breaks the format's rules; see the package
// comment.
func Open(path string) (*File, error) {
	f := &File{}
	if err := tensors.Open(&f.File, path, "safetensors", f.parse); err != nil {
		return nil, err
	}
	return f, nil
}

// parse reads the header: its length in 8 bytes, then JSON. The elements follow.
func (f *File) parse() error {
	data := tensors.Data(&f.File)
	if len(data) < 8 {
		return fmt.Errorf("this is not a safetensors file: it has %d bytes, fewer than the 8 of the header's length",
			len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	switch {
	case n > maxHeader:
		return fmt.Errorf("this is not a safetensors file: its first 8 bytes say that the header has %d bytes, but "+
			"the format allows %d", n, maxHeader)
	case n > uint64(len(data)-8):
		return fmt.Errorf("it says that its header has %d bytes, but only %d follow: it is truncated or not a "+
			"safetensors file", n, len(data)-8)
	}
	header := data[8 : 8+n]
	if !bytes.HasPrefix(header, []byte("{")) {
		return errors.New(`this is not a safetensors file: its header does not begin with "{"`)
	}
	if err := f.readHeader(header); err != nil {
		return fmt.Errorf("the header: %w", err)
	}
	return f.place(8 + int64(n))
}

// place sorts the tensors by their bytes, which must be contiguous and fill the file.
func (f *File) place(begin int64) error {
	slices.SortFunc(f.Tensors, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name))
	})
	size, end := int64(len(tensors.Data(&f.File)))-begin, int64(0)
	for i, t := range f.Tensors {
		switch {
		case t.Start < end:
			return fmt.Errorf("tensors %q and %q overlap: the file is damaged", f.Tensors[i-1].Name, t.Name)
		case t.Start > end:
			return fmt.Errorf("bytes %d to %d, before tensor %q, do not belong to a tensor: the file is damaged", end,
				t.Start, t.Name)
		case t.Size > size-t.Start:
			return fmt.Errorf("tensor %q (%s %d, bytes %d to %d of the elements) ends past the end of the file, "+
				"which holds %d bytes of elements: it is truncated or damaged",
				t.Name, t.Type, t.Dims, t.Start, t.Start+t.Size, size)
		}
		end = t.Start + t.Size
		t.Start += begin
	}
	if end != size {
		return fmt.Errorf("its last %d bytes do not belong to a tensor: the file is damaged", size-end)
	}
	return nil
}
