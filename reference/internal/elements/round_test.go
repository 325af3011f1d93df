package elements

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/x448/float16"
)

// decoded returns the only element in the bytes.
func decoded(t onnx.DataType, b ...byte) float64 {
	v := []float64{0}
	DecodeFloats(v, b, t)
	return v[0]
}

func TestFloat16AgainstLibrary(t *testing.T) {
	for code := range 1 << 16 {
		want := float64(float16.Frombits(uint16(code)).Float32())
		got := decoded(onnx.Float16, byte(code), byte(code>>8))
		if got != want && (got == got || want == want) {
			t.Fatalf("code %#04x decodes to %v, want %v", code, got, want)
		}
		if got == got && encodeFloat16(got) != uint16(code) {
			t.Fatalf("%v encodes to %#04x, want %#04x", got, encodeFloat16(got), code)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200000 {
		x := math.Float32frombits(rnd.Uint32())
		if rnd.IntN(2) == 0 { // most random bits are out of range: also use exponents around it
			x = float32(math.Ldexp(rnd.Float64()*2-1, rnd.IntN(44)-27))
		}
		want := float64(float16.Fromfloat32(x).Float32())
		if got := roundFloat16(float64(x)); got != want && (got == got || want == want) {
			t.Fatalf("%v rounds to %v, want %v", x, got, want)
		}
	}
}

func TestBFloat16Rounding(t *testing.T) {
	cases := map[float64]float64{
		1: 1, 1 + 0x1p-8: 1, 1 + 3*0x1p-8: 1 + 0x1p-6, 1 + 0x1p-8 + 0x1p-30: 1 + 0x1p-7, // ties to even
		-0x1p-133: -0x1p-133, 0x1p-134: 0, 3 * 0x1p-134: 0x1p-132, // subnormals
		0x1.fep127: 0x1.fep127, 0x1.ffp127: math.Inf(1), -0x1p130: math.Inf(-1), math.Inf(1): math.Inf(1),
	}
	for x, want := range cases {
		if got := roundBFloat16(x); got != want {
			t.Errorf("%v rounds to %v, want %v", x, got, want)
		}
	}
	if x := roundBFloat16(math.NaN()); x == x {
		t.Errorf("NaN rounds to %v", x)
	}
}

// TestNarrowFloats checks that each code decodes to a value that encodes to it, that rounding keeps it, and that the
// middle of two neighbors rounds to the even one.
func TestNarrowFloats(t *testing.T) {
	for typ, f := range miniFormats {
		codes := 1 << typ.Bits()
		for code := range codes {
			v := decoded(typ, byte(code))
			if v != v {
				continue
			}
			if got := f.encode(v); got != byte(code) {
				t.Errorf("%s: code %#x is %v, which encodes to %#x", typ, code, v, got)
			}
			if got := f.Round(v, true); got != v && !math.IsInf(v, 0) {
				t.Errorf("%s: %v rounds to %v", typ, v, got)
			}
			next := decoded(typ, byte(code+1))
			if code+1 < codes && next > v && v >= 0 && !math.IsInf(next, 0) && !f.Unsigned {
				want := v
				if code%2 == 1 {
					want = next
				}
				if got := f.Round((v+next)/2, true); got != want {
					t.Errorf("%s: the middle of %v and %v rounds to %v", typ, v, next, got)
				}
			}
		}
		if got := f.Round(1e30, true); got != f.max && typ != onnx.Float8E8M0 {
			t.Errorf("%s: 1e30 saturates to %v", typ, got)
		}
	}
}
