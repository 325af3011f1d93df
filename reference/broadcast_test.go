package reference

import (
	"fmt"
	"math"
	"testing"
)

// TestLines compares the lines of the four ops with the ops on each element, for all ways to broadcast.
func TestLines(t *testing.T) {
	numbers := func(shape []int, seed int) []float64 {
		list := make([]float64, size(shape))
		for i := range list {
			list[i] = math.Sin(float64(7*i + seed))
		}
		if len(list) > 1 {
			list[1] = math.Inf(seed)
		}
		return list
	}
	for _, c := range [][2][]int{{{}, {}}, {{3}, {}}, {{}, {3}}, {{1}, {3}}, {{2, 3}, {3}}, {{3}, {2, 3}},
		{{2, 3}, {2, 1}}, {{2, 1}, {2, 3}}, {{2, 1, 3}, {4, 1}}, {{1, 4}, {3, 1, 1}}, {{2, 3, 4}, {2, 3, 4}},
		{{0, 3}, {3}}, {{2, 3, 4}, {1, 3, 1}}} {
		a, b := numbers(c[0], 1), numbers(c[1], -1)
		out := broadcastShape(c[0], c[1])
		for i, op := range []struct {
			line line
			each func(x, y float64) float64
		}{{addLine, add[float64]}, {subtractLine, subtract[float64]}, {multiplyLine, multiply[float64]},
			{divideLine, func(x, y float64) float64 { return x / y }}} {
			got, want := zipLines(a, c[0], b, c[1], out, op.line), zipWith(a, c[0], b, c[1], out, op.each)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("op %d of %v: %v, want %v", i, c, got, want)
			}
		}
	}
}
