package term

// Exact returns a / b if b divides a for all sizes.
func (t *Table) Exact(a, b Number) (n Number, ok bool) {
	if !t.Open(a) && !t.Open(b) {
		if b == 0 || a%b != 0 {
			return 0, false
		}
		return a / b, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok1 := t.of(a)
	q, ok2 := t.of(b)
	if !ok1 || !ok2 {
		return 0, false
	}
	if r, ok := quotient(p, q); ok {
		return t.number(r), true
	}
	if b > 1 && b < plain && len(t.residue(p, b)) == 0 {
		return t.quotient(a, b), true
	}
	return 0, false
}

// Quotient returns the length of an axis that is a / b. If there is a remainder, the graph does not run.
func (t *Table) Quotient(a, b Number) Number {
	if n, ok := t.Exact(a, b); ok {
		return n
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quotient(a, b)
}

// division is a number that is the quotient or the remainder of of / by.
type division struct{ number, of, by Number }

func (t *Table) quotient(a, b Number) Number {
	n := t.result("dim quotient", variable{natural: true, whole: true, loose: true}, []Number{a, b})
	t.quotients[n] = division{n, a, b}
	return n
}

// undivided cancels quotients that are factors of n against their divisors, if those are factors as well.
func (t *Table) undivided(n Number) Number {
	for _, q := range t.quotientsOf(n) {
		if rest, ok := t.Exact(n, q.number); ok {
			if rest, ok = t.Exact(rest, q.by); ok {
				return t.Mul(rest, q.of)
			}
		}
	}
	return n
}

func (t *Table) quotientsOf(n Number) (list []division) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.quotients) == 0 {
		return nil
	}
	for _, m := range t.polys[n] {
		for _, v := range m.variables() {
			if q, ok := t.quotients[t.number(poly{{1, variables(v)}})]; ok {
				list = append(list, q)
			}
		}
	}
	return list
}

// Floor returns a / b rounded down, for b > 0. Multiples of b in a are divided separately, so that equal results are
// equal Numbers in most forms: (a - 16) / 16 + 1 is a / 16.
func (t *Table) Floor(a, b Number) Number {
	if n, ok := t.Exact(a, b); ok {
		return n
	}
	if t.Open(b) || b <= 0 {
		return t.Result("floor", a, b)
	}
	t.mu.Lock()
	p, ok := t.of(a)
	if !ok {
		t.mu.Unlock()
		return t.Result("floor", a, b)
	}
	whole, rest := p.parts(b)
	q, r := t.number(whole), t.number(rest)
	t.mu.Unlock()
	if !t.Open(r) { // of [0, b)
		return q
	}
	return t.Add(q, t.Result("floor", r, b))
}

// Mod returns the remainder of a / b rounded down, for b > 0.
func (t *Table) Mod(a, b Number) Number {
	if _, ok := t.Exact(a, b); ok {
		return 0
	}
	if !t.Open(b) {
		t.mu.Lock()
		if p, ok := t.of(a); ok && b > 0 && b < plain {
			a = t.number(t.residue(p, b))
		}
		t.mu.Unlock()
		if !t.Open(a) && a < b {
			return a
		}
	}
	n := t.Result("mod", a, b)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remainders[n] = division{n, a, b}
	return n
}

// residue returns a polynomial with the same remainder as p for the divisor b: with factors in [0, b), and without
// remainders of multiples of b.
func (t *Table) residue(p poly, b Number) poly {
	for range mostMonomials {
		_, p = p.parts(b)
		at, by := -1, division{}
		var v uint32
		for i, m := range p {
			for _, v = range m.variables() {
				if by = t.remainders[t.number(poly{{1, variables(v)}})]; by.by != 0 && by.by < plain && by.by%b == 0 {
					at = i
					break
				}
			}
			if at >= 0 {
				break
			}
		}
		if at < 0 {
			break
		}
		rest, _ := without(p[at].of, variables(v))
		of, ok := t.of(by.of)
		if !ok {
			break
		}
		part, ok := product(poly{{p[at].factor, rest}}, of)
		if !ok {
			break
		}
		others := append(p[:at:at], p[at+1:]...)
		q, ok := sum(others, part, 1)
		if !ok {
			break
		}
		p = q
	}
	return p
}
