package blocks

import (
	"math/bits"
	"slices"
)

// Count multiplies dimensions that are 0 or more; ok is false if the product exceeds 64 bits.
func Count(dims []int64) (n uint64, ok bool) {
	if slices.Contains(dims, 0) {
		return 0, true
	}
	n = 1
	for _, d := range dims {
		var over uint64
		if over, n = bits.Mul64(n, uint64(d)); over != 0 {
			return 0, false
		}
	}
	return n, true
}
