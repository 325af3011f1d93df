package streams

import "slices"

// sum is a sum of exponents with integer factors, by exponent number.
type sum map[int]int

// system solves equations between exponents of the form "a sum of exponents is 0". Exponents are numbered from 0.
type system struct {
	// solved holds the sum that an exponent equals, or nil for a free one.
	solved []sum
	// sink marks the exponents of constants, which are solved for first.
	sink []bool
}

func (s *system) add(sink bool) int {
	s.solved, s.sink = append(s.solved, nil), append(s.sink, sink)
	return len(s.solved) - 1
}

// of returns an exponent as a sum of free ones.
func (s *system) of(v int) sum {
	if s.solved[v] == nil {
		return sum{v: 1}
	}
	s.solved[v] = s.reduce(s.solved[v])
	return s.solved[v]
}

func (s *system) reduce(t sum) sum {
	out := sum{}
	for v, factor := range t {
		for w, f := range s.of(v) {
			out[w] += factor * f
		}
	}
	for v, factor := range out {
		if factor == 0 {
			delete(out, v)
		}
	}
	return out
}

// equate adds an equation. If only fractions solve it, all of its exponents become 0.
func (s *system) equate(t sum) {
	t = s.reduce(t)
	divisor := 0
	for _, factor := range t {
		divisor = gcd(divisor, factor)
	}
	best := none
	for _, v := range sortedKeys(t) {
		if f := t[v] / divisor; f != 1 && f != -1 {
			continue
		}
		// constants first, then values computed last
		if best == none || s.sink[v] || !s.sink[best] {
			best = v
		}
	}
	if best == none {
		for v := range t {
			s.solved[v] = sum{}
		}
		return
	}
	sign, is := t[best]/divisor, sum{}
	for v, factor := range t {
		if v != best {
			is[v] = -sign * factor / divisor
		}
	}
	s.solved[best] = is
}

func sortedKeys(t sum) []int {
	var keys []int
	for v := range t {
		keys = append(keys, v)
	}
	slices.Sort(keys)
	return keys
}

func gcd(a, b int) int {
	a, b = max(a, -a), max(b, -b)
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
