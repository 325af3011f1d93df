package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"
)

// parse reads everything except the elements.
func (f *File) parse() error {
	c := &cursor{data: tensors.Data(&f.File)}
	if magic := c.take(4, "the magic number"); c.err == nil && string(magic) != "GGUF" {
		return fmt.Errorf("this is not a GGUF file: it begins with %q", magic)
	}
	f.Version = c.uint32("the version")
	switch {
	case c.err != nil:
		return c.err
	case f.Version != 0 && f.Version&0xffff == 0:
		return errors.New("this GGUF file is in big-endian order, which is not supported: convert it " +
			"(gguf-convert-endian of gguf-py)")
	case f.Version != 2 && f.Version != 3:
		return fmt.Errorf("this GGUF file has version %d; only versions 2 and 3 are supported", f.Version)
	}
	// A tensor takes at least 24 bytes: name, number of dimensions, type and offset.
	tensors := c.count(24, "tensors")
	f.readMetadata(c)
	f.readTensors(c, tensors)
	if c.err != nil {
		return c.err
	}
	return f.place(c.at)
}

func (f *File) readMetadata(c *cursor) {
	n := c.count(8+4+1, "metadata entries")
	f.values = map[string]any{}
	for i := uint64(0); i < n && c.err == nil; i++ {
		key := c.string(fmt.Sprintf("the key of metadata entry %d", i))
		what := fmt.Sprintf("metadata %q", key)
		if _, exists := f.values[key]; exists {
			c.fail("%s occurs twice", what)
		} else if key == "" || !utf8.ValidString(key) {
			c.fail("metadata entry %d has the invalid key %q", i, key)
		}
		v := c.value(valueType(c.uint32(what)), what)
		f.values[key] = v
		f.Metadata = append(f.Metadata, KeyValue{key, v})
	}
}

// readTensors reads the list of tensors. place checks the offsets later.
func (f *File) readTensors(c *cursor, n uint64) {
	for i := uint64(0); i < n && c.err == nil; i++ {
		t := &Tensor{}
		t.Name = c.string(fmt.Sprintf("the name of tensor %d", i))
		what := fmt.Sprintf("tensor %q", t.Name)
		dims := c.uint32(what)
		if dims > 4 {
			c.fail("%s has %d dimensions, but GGUF allows 4", what, dims)
		}
		for range min(dims, 4) {
			d := c.uint64(what)
			if d > math.MaxInt64 {
				c.fail("%s has a dimension of %d", what, d)
			}
			t.Dims = append(t.Dims, int64(d))
		}
		slices.Reverse(t.Dims)
		t.Type = Type(c.uint32(what))
		offset := c.uint64(what)
		if f.Tensor(t.Name) != nil {
			c.fail("%s occurs twice", what)
		} else if !utf8.ValidString(t.Name) {
			c.fail("the name of %s is not UTF-8", what)
		}
		if c.err == nil {
			c.err = t.measure()
		}
		if offset > math.MaxInt64 {
			c.fail("%s has the invalid offset %d", what, offset)
		}
		t.Start = int64(offset)
		tensors.Add(&f.File, t, &t.Tensor)
	}
}

// measure counts elements and bytes.
func (t *Tensor) measure() error {
	info, ok := types[t.Type]
	if !ok {
		return fmt.Errorf("tensor %q has the type %d, which gguf-py 0.19.0 does not know", t.Name,
			uint32(t.Type))
	}
	row := int64(1)
	if len(t.Dims) > 0 {
		row = t.Dims[len(t.Dims)-1]
	}
	if row%int64(info.Elements) != 0 {
		return fmt.Errorf("tensor %q has rows of %d elements, which is not a multiple of a block of %s (%d "+
			"elements)", t.Name,
			row, t.Type, info.Elements)
	}
	n, ok := blocks.Count(t.Dims)
	over, size := bits.Mul64(n/uint64(info.Elements), uint64(info.Size))
	if !ok || over != 0 || size > math.MaxInt64 || n > math.MaxInt64 {
		return fmt.Errorf("tensor %q has too many elements: its dimensions are %d", t.Name, t.Dims)
	}
	t.Elements, t.Size, t.Format = int64(n), int64(size), info.Format
	t.Unreadable = fmt.Sprintf("elements of type %s cannot be read: requantize the file, or convert it "+
		"to F16 (llama-quantize)", t.Type)
	return nil
}

// place locates the elements of each tensor after the header and checks them against the file.
func (f *File) place(header uint64) error {
	alignment := uint64(32)
	if v := f.values["general.alignment"]; v != nil {
		a, ok := v.(uint32)
		if !ok || bits.OnesCount32(a) != 1 {
			return fmt.Errorf("general.alignment is %v: it must be a uint32 and a power of two", v)
		}
		alignment = uint64(a)
	}
	begin, size := int64((header+alignment-1)/alignment*alignment), int64(len(tensors.Data(&f.File)))
	for _, t := range f.Tensors {
		switch {
		case t.Start%int64(alignment) != 0:
			return fmt.Errorf("tensor %q begins at byte %d of the elements, which is not a multiple of "+
				"general.alignment (%d)", t.Name, t.Start, alignment)
		case t.Size == 0:
			t.Start = 0
			continue
		case begin > size || t.Start > size-begin || t.Size > size-begin-t.Start:
			return fmt.Errorf("tensor %q (%s %d, %d bytes from byte %d of the elements on) ends past the end of the "+
				"file, which has %d bytes: it is truncated or damaged",
				t.Name, t.Type, t.Dims, t.Size, t.Start, size)
		}
		t.Start += begin
	}
	order := slices.SortedFunc(slices.Values(f.Tensors), func(a, b *Tensor) int {
		return cmp.Compare(a.Start, b.Start)
	})
	end := int64(0)
	for i, t := range order {
		if t.Size > 0 && t.Start < end {
			return fmt.Errorf("tensors %q and %q overlap: the file is damaged", order[i-1].Name, t.Name)
		}
		end = t.Start + t.Size
	}
	return nil
}
