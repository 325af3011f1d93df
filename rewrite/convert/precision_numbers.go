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

// piece is the most bytes that are converted at once. Its results stay in the cache.
const piece = 1 << 15

// converter takes elements as bytes, in pieces of any length, and writes the converted elements to w if it is set.
type converter struct {
	w         io.Writer
	width     int                               // bytes of an element
	convert   func(out, elements []byte) []byte // appends the converted elements
	rest, out []byte                            // an incomplete element; the output
}

func (c *converter) Write(b []byte) (int, error) {
	n := len(b)
	if len(c.rest) > 0 {
		more := min(c.width-len(c.rest), len(b))
		c.rest, b = append(c.rest, b[:more]...), b[more:]
		if len(c.rest) < c.width {
			return n, nil
		}
		if err := c.put(c.rest); err != nil {
			return 0, err
		}
		c.rest = c.rest[:0]
	}
	whole := len(b) / c.width * c.width
	for elements := range slices.Chunk(b[:whole], piece) {
		if err := c.put(elements); err != nil {
			return 0, err
		}
	}
	c.rest = append(c.rest, b[whole:]...)
	return n, nil
}

func (c *converter) put(elements []byte) error {
	c.out = c.convert(c.out[:0], elements)
	if c.w == nil {
		return nil
	}
	_, err := c.w.Write(c.out)
	return err
}

func widening(from onnx.DataType, w io.Writer) *converter {
	return &converter{w: w, width: 2, convert: func(out, elements []byte) []byte {
		for at := 0; at < len(elements); at += 2 {
			h := binary.LittleEndian.Uint16(elements[at:])
			x := uint32(h) << 16
			if from == onnx.Float16 {
				x = math.Float32bits(blocks.Float16(h))
			}
			out = binary.LittleEndian.AppendUint32(out, x)
		}
		return out
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
	c.converter = converter{w: w, width: 4, convert: func(out, elements []byte) []byte {
		for at := 0; at < len(elements); at += 4 {
			x := binary.LittleEndian.Uint32(elements[at:])
			h, infinite := uint16(0), uint16(0x7c00)
			if to == onnx.BFloat16 {
				h, infinite = blocks.BFloat16(math.Float32frombits(x)), 0x7f80
			} else {
				h = toFloat16(x)
			}
			if h&0x7fff == infinite && x&0x7fffffff < 0x7f800000 {
				h--
				c.beyond++
				c.largest = max(c.largest, math.Abs(float64(math.Float32frombits(x))))
			}
			out = binary.LittleEndian.AppendUint16(out, h)
		}
		return out
	}}
	return c
}

// toFloat16 rounds the float32 number with these bits.
func toFloat16(x uint32) uint16 {
	sign, a := uint16(x>>16&0x8000), x&0x7fffffff
	switch {
	case a >= 0x47800000: // 65536, infinity, NaN
		return float16.Fromfloat32(math.Float32frombits(x)).Bits()
	case a < 0x38800000: // subnormal in float16: multiples of 2^-24, as float32 numbers near 0.5 are
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((a-0x38000000+0xfff+a>>13&1)>>13)
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

var typeAttributes = onnx.Words("to dtype output_dtype output_datatype softmax_precision stash_type")

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
