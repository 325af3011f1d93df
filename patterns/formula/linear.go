package formula

import (
	"cmp"
	"math/big"
	"slices"
	"sort"
)

// row is a condition on integers: the sum of n times unknowns is at most most. An unknown is a variable or a product of
// several.
type row struct {
	n    map[string]int64 // by the keys of terms
	most int64
}

// maxRows and maxFactor bound derived conditions. Beyond them, no contradiction is found.
const (
	maxRows   = 1 << 9
	maxFactor = 1 << 40
)

// maxVar bounds the positions and sizes of a model: float32 holds no greater ones exactly.
const maxVar = 1 << 24

// decided reports whether the constant of a sum is so large that it alone decides the sign.
func decided(s *Sum) (negative, ok bool) {
	most, number := big.NewRat(0, 1), big.NewRat(0, 1)
	for _, t := range s.terms {
		switch len(t.vars) {
		case 0:
			number = t.n
		case 1:
			most.Add(most, new(big.Rat).Mul(new(big.Rat).Abs(t.n), big.NewRat(maxVar, 1)))
		default:
			return false, false
		}
	}
	return number.Sign() < 0, new(big.Rat).Abs(number).Cmp(most) > 0
}

// atMostZero returns the condition that a sum is at most 0; ok is false if its numbers are too large.
func atMostZero(s *Sum) (r row, ok bool) {
	scale := big.NewInt(1)
	for _, t := range s.terms {
		d := t.n.Denom()
		g := new(big.Int).GCD(nil, nil, scale, d)
		scale.Mul(scale, new(big.Int).Div(d, g))
	}
	r.n = map[string]int64{}
	for _, t := range s.terms {
		n := new(big.Int).Mul(t.n.Num(), new(big.Int).Div(scale, t.n.Denom()))
		if !n.IsInt64() || n.Int64() > maxFactor || n.Int64() < -maxFactor {
			return r, false
		}
		if len(t.vars) == 0 {
			r.most = -n.Int64()
		} else {
			r.n[t.key()] = n.Int64()
		}
	}
	return r.reduced(), true
}

// reduced divides by the greatest common divisor of the factors, and rounds.
func (r row) reduced() row {
	g := int64(0)
	for _, n := range r.n {
		g = gcd(g, abs(n))
	}
	if g <= 1 {
		return r
	}
	out := row{make(map[string]int64, len(r.n)), floorDiv(r.most, g)}
	for key, n := range r.n {
		out.n[key] = n / g
	}
	return out
}

// opposite returns the condition that holds when r does not.
func (r row) opposite() row {
	out := row{make(map[string]int64, len(r.n)), -r.most - 1}
	for key, n := range r.n {
		out.n[key] = -n
	}
	return out
}

// contradictory reports whether no integers satisfy all conditions. It may miss contradictions. It eliminates one
// unknown after the other.
func contradictory(rows []row) bool {
	rows = slices.Clone(rows)
	for {
		counts := map[string][3]int{} // number of rows that bound an unknown from above, from below, and with a factor
		for _, r := range rows {
			if len(r.n) == 0 && r.most < 0 {
				return true
			}
			for key, n := range r.n {
				c := counts[key]
				if n > 0 {
					c[0]++
				} else {
					c[1]++
				}
				if abs(n) > 1 {
					c[2]++
				}
				counts[key] = c
			}
		}
		if len(counts) == 0 {
			return false
		}
		keys := make([]string, 0, len(counts))
		for key := range counts {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		// Without factors, the elimination is exact for integers.
		best := slices.MinFunc(keys, func(a, b string) int {
			c, d := counts[a], counts[b]
			return cmp.Or(min(c[2], 1)-min(d[2], 1), c[0]*c[1]-d[0]*d[1])
		})
		var ok bool
		if rows, ok = eliminated(rows, best); !ok {
			return false
		}
	}
}

// eliminated returns the conditions without one unknown that follow from rows; ok is false if they exceed the bounds.
func eliminated(rows []row, key string) (rest []row, ok bool) {
	var above, below []row
	for _, r := range rows {
		switch n := r.n[key]; {
		case n > 0:
			above = append(above, r)
		case n < 0:
			below = append(below, r)
		default:
			rest = append(rest, r)
		}
	}
	for _, a := range above {
		for _, b := range below {
			x, y := -b.n[key], a.n[key]
			sum := row{map[string]int64{}, 0}
			for _, part := range []struct {
				r  row
				by int64
			}{{a, x}, {b, y}} {
				if part.by > maxFactor || abs(part.r.most) > maxFactor {
					return nil, false
				}
				sum.most += part.r.most * part.by
				for k, n := range part.r.n {
					if abs(n) > 1<<20 || part.by > 1<<20 {
						return nil, false
					}
					sum.n[k] += n * part.by
				}
			}
			for k, n := range sum.n {
				if n == 0 {
					delete(sum.n, k)
				}
			}
			if len(sum.n) == 0 {
				if sum.most < 0 {
					return []row{sum}, true
				}
				continue
			}
			if rest = append(rest, sum.reduced()); len(rest) > maxRows {
				return nil, false
			}
		}
	}
	return rest, true
}

func abs(n int64) int64 { return max(n, -n) }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}
