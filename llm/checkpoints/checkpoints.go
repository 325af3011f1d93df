// Package checkpoints writes small files of weights for tests.
package checkpoints

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
)

// Tensor is float32 elements under a name. A file has Raw in their place where that is given: in GGUF, elements of the
// type Type of ggml, in safetensors of the type DType.
type Tensor struct {
	Name  string
	Dims  []int64 // outermost first
	Data  []float32
	Type  uint32
	DType string
	Raw   []byte
}

// Safetensors writes the tensors, as F32 but for raw ones.
func Safetensors(path string, tensors []Tensor) error {
	header := map[string]any{}
	var data []byte
	for _, t := range tensors {
		begin, kind := len(data), "F32"
		if t.DType != "" {
			kind = t.DType
			data = append(data, t.Raw...)
		} else {
			for _, x := range t.Data {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
			}
		}
		header[t.Name] = map[string]any{"dtype": kind, "shape": append([]int64{}, t.Dims...),
			"data_offsets": []int{begin, len(data)}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return os.WriteFile(path, append(append(b, text...), data...), 0o666)
}

// GGUF writes the tensors, as F32 but for raw ones, in a file of version 3. Metadata are strings and numbers, which
// become uint32.
func GGUF(path string, metadata map[string]any, tensors []Tensor) error {
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
	var data bytes.Buffer
	for _, t := range tensors {
		data.Write(make([]byte, (alignment-data.Len()%alignment)%alignment))
		b = text(b, t.Name)
		b = le.AppendUint32(b, uint32(len(t.Dims)))
		for i := range t.Dims {
			b = le.AppendUint64(b, uint64(t.Dims[len(t.Dims)-1-i]))
		}
		b = le.AppendUint64(le.AppendUint32(b, t.Type), uint64(data.Len()))
		data.Write(t.Raw)
		if t.Raw != nil {
			continue
		}
		if err := binary.Write(&data, le, t.Data); err != nil {
			return err
		}
	}
	b = append(b, make([]byte, (alignment-len(b)%alignment)%alignment)...)
	return os.WriteFile(path, append(b, data.Bytes()...), 0o666)
}
