// Package checkpoints writes weight files for tests: small ones, and ones with the dimensions of released models.
package checkpoints

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Tensor has float32 elements and a name. If Raw is set, the file has it instead of Data: in GGUF as ggml type Type, in
// safetensors as DType.
type Tensor struct {
	Name  string
	Dims  []int64 // outermost first
	Data  []float32
	Type  uint32
	DType string
	Raw   []byte
	// Write writes the elements of a file too large for memory: Size bytes of type DType, in GGUF of Type.
	Write func(w io.Writer) error
	Size  int64
}

// Safetensors writes the tensors, as F32 except Raw and Write tensors.
func Safetensors(path string, tensors []Tensor) (err error) {
	header, end := map[string]any{}, int64(0)
	for _, t := range tensors {
		begin, kind := end, "F32"
		switch {
		case t.Write != nil:
			kind, end = t.DType, begin+t.Size
		case t.DType != "":
			kind, end = t.DType, begin+int64(len(t.Raw))
		default:
			end = begin + 4*int64(len(t.Data))
		}
		header[t.Name] = map[string]any{"dtype": kind, "shape": append([]int64{}, t.Dims...),
			"data_offsets": []int64{begin, end}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))) // Flush returns the errors
	w.Write(text)
	for _, t := range tensors {
		switch {
		case t.Write != nil:
			if err := t.Write(w); err != nil {
				return err
			}
		case t.DType != "":
			w.Write(t.Raw)
		default:
			binary.Write(w, binary.LittleEndian, t.Data)
		}
	}
	return w.Flush()
}

// GGUF writes the tensors, as F32 except Raw and Write tensors, in a file of version 3. Metadata are strings and
// numbers, which become uint32.
func GGUF(path string, metadata map[string]any, tensors []Tensor) (err error) {
	const alignment = 32
	le := binary.LittleEndian
	text := func(b []byte, s string) []byte { return append(le.AppendUint64(b, uint64(len(s))), s...) }
	b := le.AppendUint32([]byte("GGUF"), 3)
	b = le.AppendUint64(b, uint64(len(tensors)))
	b = le.AppendUint64(b, uint64(len(metadata)))
	for key, value := range metadata {
		b = text(b, key)
		switch v := value.(type) {
		case string:
			b = text(le.AppendUint32(b, 8), v)
		case int:
			b = le.AppendUint32(le.AppendUint32(b, 4), uint32(v))
		default:
			return fmt.Errorf("metadata %q: %T", key, value)
		}
	}
	padding := func(n int64) int64 { return (alignment - n%alignment) % alignment }
	end := int64(0)
	for _, t := range tensors {
		b = text(b, t.Name)
		b = le.AppendUint32(b, uint32(len(t.Dims)))
		for i := range t.Dims {
			b = le.AppendUint64(b, uint64(t.Dims[len(t.Dims)-1-i]))
		}
		end += padding(end)
		b = le.AppendUint64(le.AppendUint32(b, t.Type), uint64(end))
		switch {
		case t.Write != nil:
			end += t.Size
		case t.Raw != nil:
			end += int64(len(t.Raw))
		default:
			end += 4 * int64(len(t.Data))
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := &counter{w: bufio.NewWriterSize(f, 1<<20)}
	w.Write(b) // Flush returns the errors
	w.Write(make([]byte, padding(w.n)))
	for _, t := range tensors {
		w.Write(make([]byte, padding(w.n)))
		switch {
		case t.Write != nil:
			if err := t.Write(w); err != nil {
				return err
			}
		case t.Raw != nil:
			w.Write(t.Raw)
		default:
			binary.Write(w, le, t.Data)
		}
	}
	return w.w.Flush()
}

// counter counts the written bytes.
type counter struct {
	w *bufio.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return c.w.Write(b)
}
