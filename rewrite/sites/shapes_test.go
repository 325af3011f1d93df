package sites

import (
	"slices"
	"testing"
)

func TestShrink(t *testing.T) {
	for _, c := range []struct{ from, want [][]int64 }{
		{[][]int64{{4, 32, 2048, 64}, {1, 1, 2048, 64}}, [][]int64{{2, 3, 5, 64}, {1, 1, 5, 64}}},
		{[][]int64{{64, 64}, {64}}, [][]int64{{64, 64}, {64}}},
		{[][]int64{{4, 999, 1, 999, 8, 3, 16}, {999, 8}, {}}, [][]int64{{2, 3, 1, 3, 8, 3, 16}, {3, 8}, {}}},
	} {
		if got := shrink(c.from); !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%v: got %v, want %v", c.from, got, c.want)
		}
	}
}
