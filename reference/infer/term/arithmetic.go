package term

// Add returns a + b.
func (t *Table) Add(a, b Number) Number {
	return t.combine("add", a, b, func(a, b Number) Number { return a + b },
		func(p, q poly) (poly, bool) { return sum(p, q, 1) })
}

// Sub returns a - b.
func (t *Table) Sub(a, b Number) Number {
	return t.combine("sub", a, b, func(a, b Number) Number { return a - b },
		func(p, q poly) (poly, bool) { return sum(p, q, -1) })
}

// Mul returns a * b.
func (t *Table) Mul(a, b Number) Number {
	return t.undivided(t.combine("mul", a, b, func(a, b Number) Number { return a * b }, product))
}

func (t *Table) combine(op string, a, b Number, numbers func(a, b Number) Number,
	polys func(p, q poly) (poly, bool)) Number {
	if !t.Open(a) && !t.Open(b) {
		return numbers(a, b)
	}
	t.mu.Lock()
	p, ok1 := t.of(a)
	q, ok2 := t.of(b)
	if ok1 && ok2 {
		if r, ok := polys(p, q); ok {
			defer t.mu.Unlock()
			return t.number(r)
		}
	}
	t.mu.Unlock()
	return t.Result(op, a, b)
}

// Natural reports whether n is nonnegative for all sizes.
func (t *Table) Natural(n Number) bool {
	if !t.Open(n) {
		return n >= 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.polys[n] {
		if m.factor < 0 {
			return false
		}
		for _, v := range m.variables() {
			if !t.variables[v].natural {
				return false
			}
		}
	}
	return true
}

// AtLeast reports whether a >= b for all sizes.
func (t *Table) AtLeast(a, b Number) bool {
	switch {
	case a == b:
		return true
	case !t.Open(a) && !t.Open(b):
		return a >= b
	case !t.Open(a) && a >= farOff, !t.Open(b) && b <= -farOff: // no size is as great
		return true
	case !t.Open(b) && b >= farOff, !t.Open(a) && a <= -farOff:
		return false
	}
	return t.Natural(t.Sub(a, b))
}

// farOff is beyond every size: exporters write such numbers for "to the end".
const farOff = Number(1)<<31 - 1024

// Least returns the lesser of a and b.
func (t *Table) Least(a, b Number) Number {
	switch {
	case t.AtLeast(b, a):
		return a
	case t.AtLeast(a, b):
		return b
	}
	return t.Result("min", min(a, b), max(a, b))
}

// Greatest returns the greater of a and b.
func (t *Table) Greatest(a, b Number) Number {
	switch {
	case t.AtLeast(a, b):
		return a
	case t.AtLeast(b, a):
		return b
	}
	return t.Result("max", min(a, b), max(a, b))
}
