package infer

import "slices"

// learn defines symbols by the numbers that ops of the last pass require to be equal in the proof world. A Concat,
// unlike an Add, runs only on equal sizes. learn reports whether it learned anything.
func (an *analysis) learn() bool {
	learned := false
	for _, e := range an.Equalities {
		learned = an.symbols.learn(e[0], e[1]) || learned
	}
	return learned
}

// learn defines a symbol such that a and b are one number.
func (t *symbols) learn(a, b int64) bool {
	bySize := map[int64]*symbol{}
	for _, s := range t.list {
		bySize[s.size] = s
	}
	terms := t.table.Terms(t.table.Sub(a, b))
	var last *symbol
	at := -1
	for i, m := range terms {
		for _, n := range m.Of {
			if bySize[n] == nil {
				return false
			}
		}
		if len(m.Of) != 1 || m.Factor != 1 && m.Factor != -1 {
			continue
		}
		s := bySize[m.Of[0]]
		if s.equal != nil || s.def != nil && !s.guessed || last != nil && last.order > s.order {
			continue
		}
		last, at = s, i
	}
	if last == nil {
		return false
	}
	e := ofNumber(0)
	for i, m := range terms {
		if i == at {
			continue
		}
		if slices.Contains(m.Of, last.size) {
			return false
		}
		product := ofNumber(-m.Factor * terms[at].Factor)
		for _, n := range m.Of {
			product = &expr{op: '*', a: product, b: ofSymbol(bySize[n])}
		}
		e = &expr{op: '+', a: e, b: product}
	}
	if e.uses(last) || e.refers(last) {
		return false
	}
	for w := range Worlds {
		if e.at(w) != last.at(w) {
			return false
		}
	}
	last.equal = e
	return true
}

// refers reports whether e depends on s in the proof world.
func (e *expr) refers(s *symbol) bool {
	switch e.op {
	case 's':
		return e.sym == s || e.sym.equal != nil && e.sym.equal.refers(s) || e.sym.def != nil && e.sym.def.refers(s)
	case 'k':
		return false
	}
	return e.a.refers(s) || e.b.refers(s)
}
