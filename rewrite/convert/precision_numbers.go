package convert

import (
	"encoding/binary"
	"io"
	"math"

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

// narrowing takes float32 elements as bytes, and writes them on as those of a half type: the nearest ones, ties to
// even. Finite ones that would become infinite become the greatest of the type, and are counted. Without w it counts
// alone.
type narrowing struct {
	to      onnx.DataType
	w       io.Writer
	beyond  int64
	largest float64

	elements elements
	out      []byte
}

func (c *narrowing) Write(b []byte) (int, error) {
	c.out = c.out[:0]
	for e := range c.elements.of(b, 4) {
		c.add(binary.LittleEndian.Uint32(e))
	}
	if c.w != nil {
		if _, err := c.w.Write(c.out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (c *narrowing) add(bits uint32) {
	x := math.Float32frombits(bits)
	h, infinite := float16.Fromfloat32(x).Bits(), uint16(0x7c00)
	if c.to == onnx.BFloat16 {
		h, infinite = blocks.BFloat16(x), 0x7f80
	}
	if h&0x7fff == infinite && !math.IsInf(float64(x), 0) {
		h--
		c.beyond++
		c.largest = math.Max(c.largest, math.Abs(float64(x)))
	}
	if c.w != nil {
		c.out = binary.LittleEndian.AppendUint16(c.out, h)
	}
}
