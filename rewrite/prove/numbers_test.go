package prove

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestSpacing compares the spacing of numbers of each type with its definition, at magnitudes from 0 to infinity.
func TestSpacing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	list := []float64{0, math.SmallestNonzeroFloat64, 0x1p-1022, 0x1p-126, 0x1p-14, 1, 65504, math.MaxFloat64,
		math.Inf(1)}
	for range 10000 {
		list = append(list, math.Ldexp(r.Float64()-0.5, r.IntN(2100)-1050))
	}
	for typ, f := range FloatTypes {
		for _, x := range list {
			_, exp := math.Frexp(max(math.Abs(x), f.leastNormal))
			if got, want := Spacing(typ, x), math.Ldexp(1, exp-f.Bits); got != want {
				t.Fatalf("%s at %g: %g, not %g", typ, x, got, want)
			}
		}
		v := slices.Clone(list)
		RoundAll(typ, v)
		for i, x := range list {
			if want := RoundTo(typ, x); v[i] != want && !(math.IsNaN(v[i]) && math.IsNaN(want)) {
				t.Fatalf("%s: %g rounds to %g, among others to %g", onnx.DataType(typ), x, want, v[i])
			}
		}
	}
}
