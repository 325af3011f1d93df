package convert

import (
	"encoding/binary"
	"io"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/x448/float16"
)

// greatest returns the greatest finite number of a half type.
func greatest(t onnx.DataType) float64 {
	if t == onnx.BFloat16 {
		return 0x1.fep127
	}
	return 65504
}

// converter takes elements as bytes, in pieces of any length, and writes what becomes of them to w, if there is one.
type converter struct {
	w         io.Writer
	width     int                              // of an element
	one       func(out, element []byte) []byte // appends what becomes of it
	rest, out []byte                           // of an element whose end comes with the next piece; to be written
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

// widening makes float32 of the elements of a half type.
func widening(from onnx.DataType, w io.Writer) *converter {
	return &converter{w: w, width: 2, one: func(out, element []byte) []byte {
		h := binary.LittleEndian.Uint16(element)
		if from == onnx.BFloat16 {
			return binary.LittleEndian.AppendUint32(out, uint32(h)<<16)
		}
		return binary.LittleEndian.AppendUint32(out, math.Float32bits(blocks.Float16(h)))
	}}
}

// narrowing makes elements of a half type of those of float32: the nearest ones, ties to even. Finite ones that would
// become infinite become the greatest of the type, and are counted.
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
