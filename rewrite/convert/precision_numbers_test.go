package convert

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestNarrowing compares the rounding with the evaluator's, which the standard's node tests check: edge cases of the
// formats and random numbers, in chunks of any size.
func TestNarrowing(t *testing.T) {
	list := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 65504, 65519.996, 65520, -65520, 1e30, math.MaxFloat32,
		0x1.fep127, 0x1.ffp127,
		0x1p-14, 0x1p-24, 0x1p-25, 0x1.000002p-25, 0x1.8p-24, 0x1.ffcp-15, 0x1.ffep-15,
		0x1p-126, 0x1p-133, 0x1p-134, 0x1p-149, 1.0009765, 1.00048828125,
		1.0014648,
		float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	random := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		list = append(list, math.Float32frombits(random.Uint32()), float32(random.NormFloat64()),
			float32(random.NormFloat64()*0x1p-15))
	}
	raw := make([]byte, 0, 4*len(list))
	for _, x := range list {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	for _, to := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
		var buffer bytes.Buffer
		c := newNarrowing(to, &buffer)
		for b := raw; len(b) > 0; {
			n := min(1+random.IntN(9), len(b))
			if _, err := c.Write(b[:n]); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
		got := buffer.Bytes()
		if len(c.rest) > 0 {
			t.Errorf("%x is left", c.rest)
		}
		x, err := reference.FromONNX(onnx.NewFloat32s("x", []int64{int64(len(list))}, list))
		if err != nil {
			t.Fatal(err)
		}
		beyond := int64(0)
		for i, f := range x.F {
			if !math.IsInf(f, 0) && f == f && math.Abs(f) > greatest(to) && math.IsInf(rounded(t, to, f), 0) {
				x.F[i] = math.Copysign(greatest(to), f)
				beyond++
			}
		}
		x.DataType = to
		want, err := x.ToONNX("x")
		if err != nil {
			t.Fatal(err)
		}
		b, err := want.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			if !bytes.Equal(got[2*i:2*i+2], b[2*i:2*i+2]) && list[i] == list[i] {
				t.Errorf("%s of %g (%x): %x, not %x", to, list[i], math.Float32bits(list[i]), got[2*i:2*i+2],
					b[2*i:2*i+2])
			}
		}
		if c.beyond != beyond || beyond == 0 || c.largest != math.MaxFloat32 {
			t.Errorf("%s: %d are beyond the range, up to %g, not %d", to, c.beyond, c.largest, beyond)
		}

		var all []byte // every number of the type, there and back
		for h := range 1 << 16 {
			all = binary.LittleEndian.AppendUint16(all, uint16(h))
		}
		var floats, halves bytes.Buffer
		w := widening(to, &floats)
		for _, part := range [][]byte{all[:3], all[3:4], all[4:1001], all[1001:]} {
			if _, err := w.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		wide := floats.Bytes()
		if _, err := newNarrowing(to, &halves).Write(wide); err != nil {
			t.Fatal(err)
		}
		again := halves.Bytes()
		for h := range 1 << 16 {
			if f := math.Float32frombits(binary.LittleEndian.Uint32(wide[4*h:])); f == f && !bytes.Equal(all[2*h:2*h+2],
				again[2*h:2*h+2]) {
				t.Fatalf("%s %04x is %g, and that is %x", to, h, f, again[2*h:2*h+2])
			}
		}
	}
}

// rounded rounds with the evaluator.
func rounded(t *testing.T, to onnx.DataType, x float64) float64 {
	t.Helper()
	v, err := (&reference.Tensor{DataType: to, Shape: []int{}, F: []float64{x}}).ToONNX("x")
	if err != nil {
		t.Fatal(err)
	}
	r, err := reference.FromONNX(v)
	if err != nil {
		t.Fatal(err)
	}
	return r.F[0]
}
