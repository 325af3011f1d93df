package latentcache

import (
	"math"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// TestCalmScores scales queries by a power of two, so that the scores have a magnitude of about 1.
func TestCalmScores(t *testing.T) {
	for _, great := range []float64{1e-6, 1, 30, 1e9} {
		made := func(number int, by float64) *reference.Tensor {
			x, err := prove.MakeInput(prove.Normal, number, onnx.Double, []int64{1, 1, 200, 16})
			if err != nil {
				t.Fatal(err)
			}
			for i := range x.F {
				x.F[i] *= by
			}
			return x
		}
		const scale = 0.25
		q, k := made(1, 1), made(2, great)
		before := slices.Clone(q.F)
		calm(q, k, scale)
		squares := 0.0
		for row := range 200 {
			score := 0.0
			for i := range 16 {
				score += q.F[row*16+i] * k.F[row*16+i] * scale
			}
			squares += score * score / 200
		}
		if size := math.Sqrt(squares); size < 0.4 || size > 2.5 {
			t.Errorf("keys of %g: scores of %g", great, size)
		}
		fraction, _ := math.Frexp(q.F[0] / before[0])
		if fraction != 0.5 || q.F[7]/before[7] != q.F[0]/before[0] {
			t.Errorf("keys of %g: the queries are multiplied by %g and %g", great, q.F[0]/before[0], q.F[7]/before[7])
		}
	}
	q := reference.NewFloats(onnx.Float, []int{1, 1, 1, 2}, []float64{1, 2})
	if calm(q, reference.NewFloats(onnx.Float, []int{1, 1, 1, 2}, []float64{0, 0}), 1); q.F[1] != 2 {
		t.Errorf("beside zeros the queries become %v", q.F)
	}
	a, b := parts(reference.NewFloats(onnx.Float, []int{1, 1, 2, 3}, []float64{1, 2, 3, 4, 5, 6}), 2)
	if !slices.Equal(a, []float64{1, 2, 4, 5}) || !slices.Equal(b, []float64{3, 6}) {
		t.Errorf("the parts are %v and %v", a, b)
	}
}
