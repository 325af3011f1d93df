package elementwise

import (
	"fmt"
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// TestLines compares the lines of the four ops with the ops on each element, for all ways to broadcast.
func TestLines(t *testing.T) {
	numbers := func(shape []int, seed int) []float64 {
		list := make([]float64, tensor.Size(shape))
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
		out := tensor.BroadcastShape(c[0], c[1])
		for i, op := range []struct {
			line tensor.Line
			each func(x, y float64) float64
		}{{tensor.AddLine, Add[float64]}, {tensor.SubtractLine, Subtract[float64]},
			{tensor.MultiplyLine, Multiply[float64]},
			{tensor.DivideLine, func(x, y float64) float64 { return x / y }}} {
			got, want := tensor.ZipLines(a, c[0], b, c[1], out, op.line), tensor.ZipWith(a, c[0], b, c[1], out, op.each)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("op %d of %v: %v, want %v", i, c, got, want)
			}
		}
	}
}
