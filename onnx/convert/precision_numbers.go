package convert

import (
	"encoding/binary"
	"io"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// greatest gives the greatest finite number of a half type.
func greatest(t onnx.DataType) float64 {
	if t == onnx.BFloat16 {
		return 0x1.fep127
	}
	return 65504
}

// narrowing takes float32 elements as bytes, and writes them on as those of a half type: the nearest ones, ties to even. Finite ones
// that would become infinite become the greatest of the type, and are counted. Without w it counts alone.
type narrowing struct {
	to      onnx.DataType
	w       io.Writer
	beyond  int64
	largest float64

	rest []byte // of an element that began in the chunk before
	out  []byte
}

func (c *narrowing) Write(b []byte) (int, error) {
	written := len(b)
	c.out = c.out[:0]
	if len(c.rest) > 0 {
		n := min(4-len(c.rest), len(b))
		c.rest = append(c.rest, b[:n]...)
		b = b[n:]
		if len(c.rest) < 4 {
			return written, nil
		}
		c.add(binary.LittleEndian.Uint32(c.rest))
		c.rest = c.rest[:0]
	}
	for len(b) >= 4 {
		c.add(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	c.rest = append(c.rest, b...)
	if c.w != nil {
		if _, err := c.w.Write(c.out); err != nil {
			return 0, err
		}
	}
	return written, nil
}

func (c *narrowing) add(bits uint32) {
	var h uint16
	if c.to == onnx.BFloat16 {
		h = bfloat16Bits(bits)
	} else {
		h = float16Bits(bits)
	}
	infinite := uint16(0x7c00)
	if c.to == onnx.BFloat16 {
		infinite = 0x7f80
	}
	if h&0x7fff == infinite && bits&0x7fffffff < 0x7f800000 {
		h--
		c.beyond++
		c.largest = math.Max(c.largest, math.Abs(float64(math.Float32frombits(bits))))
	}
	if c.w != nil {
		c.out = binary.LittleEndian.AppendUint16(c.out, h)
	}
}

// bfloat16Bits rounds a float32 to bfloat16, ties to even; a NaN stays one.
func bfloat16Bits(x uint32) uint16 {
	if x&0x7fffffff > 0x7f800000 {
		return uint16(x>>16) | 0x40
	}
	return uint16((x + 0x7fff + x>>16&1) >> 16)
}

// float16Bits rounds a float32 to IEEE binary16, ties to even; a NaN stays one.
func float16Bits(x uint32) uint16 {
	sign := uint16(x >> 16 & 0x8000)
	switch a := x & 0x7fffffff; {
	case a > 0x7f800000:
		return sign | 0x7e00
	case a >= 0x47800000: // 65536 and more
		return sign | 0x7c00
	case a < 0x33000000: // below half of the least subnormal
		return sign
	case a < 0x38800000: // subnormal
		shift := 126 - a>>23
		m := a&0x7fffff | 0x800000
		h := m >> shift
		if rest, tie := m&(1<<shift-1), uint32(1)<<(shift-1); rest > tie || rest == tie && h&1 == 1 {
			h++
		}
		return sign | uint16(h)
	default: // a carry rightly runs into the exponent
		a -= 112 << 23
		return sign | uint16((a+0xfff+a>>13&1)>>13)
	}
}
