package onnx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// Tensor is a constant: an initializer or the value of an attribute.
//
// Its elements are little-endian bytes, packed like TensorProto.raw_data (two 4-bit elements per byte, low nibble
// first). They may be in a mapped file: never write to them.
type Tensor struct {
	Name     string
	DataType DataType
	Dims     []int64
	// External is the place of the elements in another file, or nil.
	External *External

	raw   []byte // elements, nil if they are in proto's typed fields or in an external file
	proto *onnxpb.TensorProto
	files *externalFiles // opens External, nil for tensors made in memory

	reference bool // the elements may be missing at External

	assembly *assembly // elements of other tensors, or nil
	deferred *deferral // computes the elements on demand, or nil
}

// External is the place of a tensor's elements in a file beside the model (TensorProto.external_data).
type External struct {
	Location string // relative to the model's folder
	Offset   int64
	Length   int64 // -1 if the entry is absent: the shape determines the end
	Checksum string
}

// ErrStringTensor is returned by Bytes for string tensors, whose elements have no fixed size.
var ErrStringTensor = errors.New("a string tensor has no raw bytes")

// NewTensor makes a tensor over raw (little-endian, packed). It returns an error if the length does not fit dims and t.
func NewTensor(name string, t DataType, dims []int64, raw []byte) (*Tensor, error) {
	n, err := byteSize(t, dims)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	if n != int64(len(raw)) {
		return nil, fmt.Errorf("tensor %q: %s%v takes %d bytes, got %d", name, t, dims, n, len(raw))
	}
	if raw == nil {
		raw = []byte{}
	}
	return &Tensor{Name: name, DataType: t, Dims: dims, raw: raw}, nil
}

// NewInt64s makes a one-dimensional int64 tensor.
func NewInt64s(name string, v []int64) *Tensor {
	raw := make([]byte, 8*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint64(raw[8*i:], uint64(x))
	}
	return &Tensor{Name: name, DataType: Int64, Dims: []int64{int64(len(v))}, raw: raw}
}

// NewFloat32s makes a float32 tensor of the given shape; nil dims make a scalar of v[0].
func NewFloat32s(name string, dims []int64, v []float32) *Tensor {
	raw := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(x))
	}
	return &Tensor{Name: name, DataType: Float, Dims: dims, raw: raw}
}

// Len returns the number of elements, or -1 if the dims are negative or overflow.
func (t *Tensor) Len() int64 {
	n, err := elementCount(t.Dims)
	if err != nil {
		return -1
	}
	return n
}

// Size returns the number of bytes of the elements, or -1 if the shape or type has no size.
func (t *Tensor) Size() int64 {
	n, err := byteSize(t.DataType, t.Dims)
	if err != nil {
		return -1
	}
	return n
}

// Strings returns the elements of a string tensor.
func (t *Tensor) Strings() []string {
	if t.proto == nil {
		return nil
	}
	s := make([]string, len(t.proto.StringData))
	for i, b := range t.proto.StringData {
		s[i] = string(b)
	}
	return s
}

// IsReadable reports whether the elements are available; a model can be read without some external files.
func (t *Tensor) IsReadable() bool {
	if t.External == nil {
		return true
	}
	_, err := t.Bytes()
	return err == nil
}

// Bytes returns the elements as little-endian packed bytes: from the mapped file, from an external file (opened on
// first use), converted from the message's typed fields, or assembled from other tensors (which takes their size in
// memory each time). The caller must not write to them.
func (t *Tensor) Bytes() ([]byte, error) {
	switch {
	case t.DataType == String:
		return nil, fmt.Errorf("tensor %q: %w", t.Name, ErrStringTensor)
	case t.files != nil && t.files.isClosed():
		return nil, fmt.Errorf("tensor %q: %w", t.Name, ErrClosed)
	case t.External != nil && t.files == nil:
		return nil, fmt.Errorf("tensor %q: %w: it was made in memory, so no folder contains %q", t.Name, ErrMissingData,
			t.External.Location)
	case t.External != nil:
		b, err := t.files.bytes(t)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		return b, nil
	case t.raw != nil:
		return t.raw, nil
	case t.isMade():
		return t.madeBytes()
	}
	b, err := typedBytes(t.proto, t.DataType)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if n, err := byteSize(t.DataType, t.Dims); err != nil || n != int64(len(b)) {
		return nil, fmt.Errorf("tensor %q: %s%v takes %d bytes, but its fields hold %d", t.Name, t.DataType, t.Dims, n,
			len(b))
	}
	return b, nil
}

func elementCount(dims []int64) (int64, error) {
	n := int64(1)
	zero := false
	for _, d := range dims {
		if d < 0 {
			return 0, fmt.Errorf("negative dimension in %v", dims)
		}
		if d == 0 {
			zero = true
			continue
		}
		if n > math.MaxInt64/16/d { // leaves room for 16 bytes per element
			return 0, fmt.Errorf("dimensions %v overflow", dims)
		}
		n *= d
	}
	if zero {
		return 0, nil
	}
	return n, nil
}

func byteSize(t DataType, dims []int64) (int64, error) {
	n, err := elementCount(dims)
	if err != nil {
		return 0, err
	}
	bits := t.Bits()
	if bits == 0 {
		return 0, fmt.Errorf("%s elements have no fixed size", t)
	}
	if bits >= 8 {
		return n * int64(bits/8), nil
	}
	return (n*int64(bits) + 7) / 8, nil
}

// typedBytes converts the typed fields of a TensorProto (float_data, int32_data, …) to raw bytes. onnx.proto documents
// the field of each type.
func typedBytes(p *onnxpb.TensorProto, t DataType) ([]byte, error) {
	if p == nil {
		return []byte{}, nil
	}
	le := binary.LittleEndian
	b := []byte{}
	switch t {
	case Float, Complex64:
		for _, f := range p.FloatData {
			b = le.AppendUint32(b, math.Float32bits(f))
		}
	case Double, Complex128:
		for _, f := range p.DoubleData {
			b = le.AppendUint64(b, math.Float64bits(f))
		}
	case Int64:
		for _, i := range p.Int64Data {
			b = le.AppendUint64(b, uint64(i))
		}
	case Uint64:
		for _, i := range p.Uint64Data {
			b = le.AppendUint64(b, i)
		}
	case Uint32:
		for _, i := range p.Uint64Data {
			b = le.AppendUint32(b, uint32(i))
		}
	case Int32:
		for _, i := range p.Int32Data {
			b = le.AppendUint32(b, uint32(i))
		}
	case Uint16, Int16, Float16, BFloat16:
		for _, i := range p.Int32Data {
			b = le.AppendUint16(b, uint16(i))
		}
	case Float6E2M3, Float6E3M2: // one element per entry here, four elements in three bytes in raw_data
		b = make([]byte, (len(p.Int32Data)*6+7)/8)
		for i, x := range p.Int32Data {
			bit := 6 * i
			v := uint16(x&0x3f) << (bit % 8)
			b[bit/8] |= byte(v)
			if v > 0xff {
				b[bit/8+1] |= byte(v >> 8)
			}
		}
	default:
		if bits := t.Bits(); bits == 0 || bits > 8 {
			return nil, fmt.Errorf("data type %s has no typed field", t)
		}
		for _, i := range p.Int32Data { // one 8-bit element per entry; smaller ones are already packed into bytes
			b = append(b, byte(i))
		}
	}
	return b, nil
}
