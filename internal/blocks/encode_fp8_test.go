package blocks

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestEncodeFP8 compares the codes of 150 rows, the last 22 of which are a separate group, with the nearest
// float8e4m3fn.
func TestEncodeFP8(t *testing.T) {
	const rows, cols = 150, 256
	f, values := FP8Block, Values(onnx.Float8E4M3FN)
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(12)-6)))
		if i/cols < 128 && i%cols < 128 {
			x[i] = 0
		}
	}
	x[5*cols+200] = -1 << 12
	for i, v := range []float32{464, 448, 1, 1.0625, 1.1875, 0x1p-9, 0x1p-10, 3 * 0x1p-10, -0x1p-7, 0x1.fp-7} {
		x[140*cols+i], x[140*cols+100] = v, 448 // the scale is 464/448 there
	}
	for first := 0; first < rows; first += f.SharedRows {
		group := x[first*cols : min(rows, first+f.SharedRows)*cols]
		shared, stored, back := make([]byte, cols/128*f.Size), make([]byte, cols/128*f.Size), make([]float32, cols)
		if err := f.Share(shared, group, cols); err != nil {
			t.Fatal(err)
		}
		for b := range cols / 128 {
			most := float32(0)
			for i, v := range group {
				if i%cols/128 == b {
					most = max(most, float32(math.Abs(float64(v))))
				}
			}
			d := math.Float32frombits(le.Uint32(shared[b*f.Size:]))
			if d != most/448 {
				t.Errorf("rows from %d, block %d: scale %v of %v", first, b, d, most)
			}
			for row := range len(group) / cols {
				src := group[row*cols:][:cols]
				copy(stored, shared)
				if err := f.Encode(stored, src); err != nil {
					t.Fatal(err)
				}
				f.Decode(back, stored, 0)
				for i := range 128 {
					v, code := src[b*128+i], stored[b*f.Size+4+i]
					if d == 0 {
						if code != 0 || back[b*128+i] != 0 {
							t.Fatalf("a block of zeros has code %#x", code)
						}
						continue
					}
					q := float64(v / d)
					best := byte(0)
					for c := range byte(127) { // magnitudes
						a := math.Abs(float64(values[c]) - math.Abs(q))
						least := math.Abs(float64(values[best]) - math.Abs(q))
						if a < least || a == least && c%2 == 0 {
							best = c
						}
					}
					if code&0x7f != best || best > 0 && (code > 0x7f) != (q < 0) {
						t.Fatalf("%v is %#x, not %#x", q, code, best)
					}
				}
			}
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(-1)} {
		group := slices.Clone(x[:2*cols])
		group[cols+3] = float32(bad)
		if err := f.Share(make([]byte, 2*f.Size), group, cols); err == nil || !strings.Contains(err.Error(),
			"row 1: element 3 is") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
