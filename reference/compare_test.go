package reference

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// closeTo compares within abs + rel*|want|; integers, strings, NaN and infinities must be equal.
func closeTo(got, want *Tensor, abs, rel float64) error {
	if got == nil {
		return fmt.Errorf("no output")
	}
	if got.DataType != want.DataType || !slices.Equal(got.Shape, want.Shape) {
		return fmt.Errorf("got %s, want %s", got, want)
	}
	for i, w := range want.S {
		if got.S[i] != w {
			return fmt.Errorf("element %d: got %q, want %q", i, got.S[i], w)
		}
	}
	for i, w := range want.I {
		if got.I[i] != w {
			return fmt.Errorf("element %d: got %d, want %d", i, got.I[i], w)
		}
	}
	for i, w := range want.F {
		g := got.F[i]
		if g == w || g != g && w != w {
			continue
		}
		if !(math.Abs(g-w) <= abs+rel*math.Abs(w)) || math.IsInf(w, 0) {
			return fmt.Errorf("element %d of %s: got %v, want %v", i, want, g, w)
		}
	}
	return nil
}

// ulp is the distance of neighboring values of a type at the magnitude of the greatest finite element.
func ulp(t *Tensor) float64 {
	top := 0.0
	for _, v := range t.F {
		if !math.IsInf(v, 0) && v == v {
			top = max(top, math.Abs(v))
		}
	}
	_, e := math.Frexp(top)
	bits := map[onnx.DataType]int{onnx.Float16: 11, onnx.BFloat16: 8, onnx.Float: 24, onnx.Double: 53}[t.DataType]
	return math.Ldexp(1, e-bits)
}
