package streams

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// each calls see for every element of a float32 or float64 constant. Only a piece of it is in memory.
func each(t *onnx.Tensor, see func(float64)) error {
	width := t.DataType.Bits() / 8
	if t.DataType != onnx.Float && t.DataType != onnx.Double {
		return fmt.Errorf("constant %q is of %s: expected a model in float32", t.Name, t.DataType)
	}
	const piece = 1 << 16
	b := make([]byte, min(t.Len(), piece)*int64(width))
	for at := int64(0); at < t.Len(); at += piece {
		b = b[:min(t.Len()-at, piece)*int64(width)]
		if err := t.ReadElements(b, at); err != nil {
			return err
		}
		for i := 0; i < len(b); i += width {
			if width == 4 {
				see(float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))))
			} else {
				see(math.Float64frombits(binary.LittleEndian.Uint64(b[i:])))
			}
		}
	}
	return nil
}

// greatestOf returns the largest finite magnitude in a constant.
func greatestOf(t *onnx.Tensor) (most float64, err error) {
	err = each(t, func(x float64) {
		if x = math.Abs(x); x > most && !math.IsInf(x, 0) {
			most = x
		}
	})
	return most, err
}

func isZero(t *onnx.Tensor) bool {
	most, err := greatestOf(t)
	return err == nil && most == 0
}

// isLost reports whether a number is 0 in float16.
func isLost(x float64) bool { return math.Abs(x) <= 0x1p-25 }
