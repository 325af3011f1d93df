package blocks

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestFloat16 converts all halves. The hash is from numpy:
//
//	hashlib.sha256(np.arange(65536, dtype="<u2").view("<f2").astype("<f4").tobytes()).hexdigest()
func TestFloat16(t *testing.T) {
	var halves []byte
	for i := range 1 << 16 {
		halves = binary.LittleEndian.AppendUint16(halves, uint16(i))
	}
	values := make([]float32, 1<<16)
	ReaderOf(onnx.Float16)(values, halves)
	h := sha256.New()
	for _, v := range values {
		h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
	}
	if got, want := hex.EncodeToString(h.Sum(nil)),
		"f4fdd084f85448d28c84f20fabf4022ba938e40b7f382d2727dec6f41ac6267a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNoReader(t *testing.T) {
	for _, kind := range []onnx.DataType{onnx.Undefined, onnx.String, onnx.Complex64, onnx.Complex128, onnx.Int4,
		onnx.Float4E2M1, onnx.Float6E2M3} {
		if ReaderOf(kind) != nil {
			t.Errorf("%s has a reader", kind)
		}
	}
}
