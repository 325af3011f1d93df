package safetensors

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// readHeader reads the metadata and the list of tensors. place checks the byte ranges later.
func (f *File) readHeader(header []byte) error {
	return readObject(header, func(r reader, key string) error {
		if key == "__metadata__" {
			if err := f.readMetadata(r); err != nil {
				return fmt.Errorf("__metadata__: %w", err)
			}
			return nil
		}
		t := &Tensor{}
		t.Name = key
		if err := t.read(r); err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		tensors.Add(&f.File, t, &t.Tensor)
		return nil
	})
}

func (f *File) readMetadata(r reader) error {
	f.Metadata = map[string]string{}
	return r.object(func(key string) (err error) {
		f.Metadata[key], err = r.string()
		return err
	})
}

// read reads the entry of a tensor: dtype, shape and data_offsets. It ignores other keys.
func (t *Tensor) read(r reader) error {
	var offsets []int64
	err := r.object(func(key string) (err error) {
		switch key {
		case "dtype":
			var s string
			s, err = r.name()
			t.Type = Type(s)
		case "shape":
			t.Dims, err = r.numbers()
		case "data_offsets":
			offsets, err = r.numbers()
		default:
			err = r.skip()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case t.Type == "" || t.Dims == nil || offsets == nil:
		return errors.New("its entry lacks one of dtype, shape and data_offsets")
	case t.Type.DataType() == onnx.Undefined:
		return fmt.Errorf("it has the type %q, which safetensors 0.8.0 does not know", t.Type)
	case len(offsets) != 2 || offsets[0] > offsets[1]:
		return fmt.Errorf("its data_offsets are %d: they must be a begin and an end", offsets)
	}
	t.Start, t.Size = offsets[0], offsets[1]-offsets[0]
	return t.measure()
}

// measure counts elements, and compares the bytes they need with the tensor's bytes.
func (t *Tensor) measure() error {
	n, ok := blocks.Count(t.Dims)
	over, size := bits.Mul64(n, uint64(t.Type.DataType().Bits()))
	if !ok || over != 0 || n > math.MaxInt64 {
		return fmt.Errorf("it has too many elements: its shape is %d", t.Dims)
	}
	if size%8 != 0 || size/8 != uint64(t.Size) {
		return fmt.Errorf("%s %d takes %d bits, but its data_offsets span %d bytes", t.Type, t.Dims, size, t.Size)
	}
	t.Elements, t.Format = int64(n), blocks.Of(t.Type.DataType())
	t.Unreadable = fmt.Sprintf("elements of type %s cannot be read as float32", t.Type)
	return nil
}
