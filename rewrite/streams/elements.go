package streams

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/x448/float16"
)

// element reads and writes the elements of constants of a type: floats, or bytes, which are the exponents of the scales
// of MXFP4.
type element struct {
	read  func(b []byte) float64
	write func(b []byte, x float64)
	// least is the magnitude from which products with powers of two lose no digit; 0 if that does not matter.
	least float64
}

var elements = map[onnx.DataType]element{
	onnx.Uint8: {func(b []byte) float64 {
		if b[0] == 255 {
			return math.NaN()
		}
		return math.Ldexp(1, int(b[0])-127)
	}, func(b []byte, x float64) {
		if b[0] = 255; x == x {
			b[0] = byte(127 + math.Ilogb(x))
		}
	}, 0x1p-127},
	onnx.Float16: {func(b []byte) float64 { return float64(blocks.Float16(binary.LittleEndian.Uint16(b))) },
		func(b []byte, x float64) {
			binary.LittleEndian.PutUint16(b, float16.Fromfloat32(float32(x)).Bits())
		}, 0x1p-14},
	onnx.BFloat16: {func(b []byte) float64 {
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	}, func(b []byte, x float64) { binary.LittleEndian.PutUint16(b, blocks.BFloat16(float32(x))) }, 0x1p-126},
	onnx.Float: {func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) },
		func(b []byte, x float64) { binary.LittleEndian.PutUint32(b, math.Float32bits(float32(x))) }, 0},
	onnx.Double: {func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) },
		func(b []byte, x float64) { binary.LittleEndian.PutUint64(b, math.Float64bits(x)) }, 0},
}

// each calls see for every element of a constant. Only a piece of it is in memory.
func each(t *onnx.Tensor, see func(float64)) error {
	e, ok := elements[t.DataType]
	if !ok {
		return fmt.Errorf("constant %q is of %s: expected a model in float32", t.Name, t.DataType)
	}
	width := t.DataType.Bits() / 8
	const piece = 1 << 16
	b := make([]byte, min(t.Len(), piece)*int64(width))
	for at := int64(0); at < t.Len(); at += piece {
		b = b[:min(t.Len()-at, piece)*int64(width)]
		if err := t.ReadElements(b, at); err != nil {
			return err
		}
		for i := 0; i < len(b); i += width {
			see(e.read(b[i:]))
		}
	}
	return nil
}

// rangeOf returns the least and the largest finite magnitude in a constant, except zeros; 0 if there are only zeros.
func rangeOf(t *onnx.Tensor) (least, most float64, err error) {
	err = each(t, func(x float64) {
		if x = math.Abs(x); x > 0 && !math.IsInf(x, 0) {
			most = max(most, x)
			if least == 0 || x < least {
				least = x
			}
		}
	})
	return least, most, err
}

func isZero(t *onnx.Tensor) bool {
	_, most, err := rangeOf(t)
	return err == nil && most == 0
}

// isLost reports whether a number is 0 in float16.
func isLost(x float64) bool { return math.Abs(x) <= 0x1p-25 }
