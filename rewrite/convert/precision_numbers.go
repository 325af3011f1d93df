package convert

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/x448/float16"
)

func greatest(t onnx.DataType) float64 {
	if t == onnx.BFloat16 {
		return 0x1.fep127
	}
	return 65504
}

// converter takes elements as bytes, in pieces of any length, and writes the converted elements to w if it is set.
type converter struct {
	w         io.Writer
	width     int                              // bytes of an element
	one       func(out, element []byte) []byte // appends the converted element
	rest, out []byte                           // an incomplete element; the output
}

func (c *converter) Write(b []byte) (int, error) {
	c.rest, c.out = append(c.rest, b...), c.out[:0]
	whole := len(c.rest) / c.width * c.width
	for e := range slices.Chunk(c.rest[:whole], c.width) {
		c.out = c.one(c.out, e)
	}
	c.rest = append(c.rest[:0], c.rest[whole:]...)
	if c.w != nil {
		if _, err := c.w.Write(c.out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func widening(from onnx.DataType, w io.Writer) *converter {
	return &converter{w: w, width: 2, one: func(out, element []byte) []byte {
		h := binary.LittleEndian.Uint16(element)
		if from == onnx.BFloat16 {
			return binary.LittleEndian.AppendUint32(out, uint32(h)<<16)
		}
		return binary.LittleEndian.AppendUint32(out, math.Float32bits(blocks.Float16(h)))
	}}
}

// narrowing rounds float32 elements to the nearest number of a half type, ties to even. Finite elements that would
// become infinite become the largest number of the type and are counted.
type narrowing struct {
	converter
	beyond  int64
	largest float64
}

func newNarrowing(to onnx.DataType, w io.Writer) *narrowing {
	c := &narrowing{}
	c.converter = converter{w: w, width: 4, one: func(out, element []byte) []byte {
		x := math.Float32frombits(binary.LittleEndian.Uint32(element))
		h, infinite := float16.Fromfloat32(x).Bits(), uint16(0x7c00)
		if to == onnx.BFloat16 {
			h, infinite = blocks.BFloat16(x), 0x7f80
		}
		if h&0x7fff == infinite && !math.IsInf(float64(x), 0) {
			h--
			c.beyond++
			c.largest = max(c.largest, math.Abs(float64(x)))
		}
		return binary.LittleEndian.AppendUint16(out, h)
	}}
	return c
}

// widen converts a model of half types to float32, exactly: constants, Casts and declared types. It leaves no Cast from
// float32 to itself.
func widen(m *onnx.Model, r *PrecisionReport) error {
	p := &precision{model: m, report: r}
	declared := func(v *onnx.Value) {
		if v == nil {
			return
		}
		if t, ok := v.Type(); ok && t.DataType.IsHalf() {
			t.DataType = onnx.Float
			p.edit.SetType(v, t)
		}
	}
	var err error
	convert := func(t *onnx.Tensor) *onnx.Tensor {
		if err != nil || t == nil || !t.DataType.IsHalf() {
			return t
		}
		var out *onnx.Tensor
		if out, err = widened(t, r); err == nil {
			r.Initializers++
			r.Values += max(t.Len(), 0)
		}
		return out
	}
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			p.edit.SetConst(v, convert(v.Const))
			declared(v)
		}
		for _, v := range slices.Concat(g.Inputs, g.Outputs) {
			declared(v)
		}
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				declared(v)
			}
			for _, a := range n.Attributes {
				if a.Tensor != nil && a.Tensor.DataType.IsHalf() {
					wide := *a
					wide.Tensor = convert(a.Tensor)
					p.edit.SetAttr(n, &wide)
				}
				if a.Type == onnx.AttrInt && onnx.DataType(a.Int).IsHalf() && typeAttributes[a.Name] {
					wide := *a
					wide.Int = int64(onnx.Float)
					p.edit.SetAttr(n, &wide)
				}
			}
		}
	}
	if err != nil {
		return fmt.Errorf("cannot convert to float32: %w", err)
	}
	return p.removeCasts()
}

var typeAttributes = set("to", "dtype", "output_dtype", "output_datatype", "softmax_precision", "stash_type")

func widened(t *onnx.Tensor, r *PrecisionReport) (*onnx.Tensor, error) {
	missing := false
	if t.External != nil {
		_, err := t.Bytes()
		missing = errors.Is(err, onnx.ErrMissingData)
	}
	if missing {
		r.Missing++
		c := t.Tied(t.Name)
		c.DataType = onnx.Float
		x := *t.External
		x.Offset, x.Length, x.Checksum = 2*x.Offset, 2*x.Length, ""
		if x.Length < 0 {
			x.Length = -1
		}
		c.External = &x
		return c, nil
	}
	from := t.DataType
	if t.Len() > fewElements {
		return onnx.NewComputed(t.Name, onnx.Float, t.Dims, func(dst []byte, first int64) error {
			half := make([]byte, len(dst)/2)
			if err := t.ReadElements(half, first); err != nil {
				return err
			}
			_, err := widening(from, bytes.NewBuffer(dst[:0])).Write(half)
			return err
		})
	}
	var b bytes.Buffer
	if err := t.WriteElements(widening(from, &b)); err != nil {
		return nil, err
	}
	return onnx.NewTensor(t.Name, onnx.Float, t.Dims, b.Bytes())
}
