package sample

import "math"

// Weight returns the weight of a token whose logit, divided by the temperature, is d above the greatest one; d is 0 or
// less: round(2^40 * exp(d)). Each operation rounds by itself, so that all implementations return the same integer. The
// sum of integers does not depend on their order.
func Weight(d float64) int64 {
	if !(d >= LeastExponent) {
		return 0
	}
	n := math.RoundToEven(d * Log2E)
	x := d - float64(n*Ln2High) // the conversions forbid that both operations are rounded as one
	x -= float64(n * Ln2Low)
	y := Terms[0]
	for _, c := range Terms[1:] {
		y = float64(y*x) + c
	}
	return int64(math.RoundToEven(y * math.Float64frombits(uint64(1023+40+int(n))<<52)))
}
