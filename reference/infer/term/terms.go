package term

import (
	"strconv"
	"strings"
)

// Term is a product of variables and a factor.
type Term struct {
	Factor int64
	Of     []Number
}

// Terms returns the terms of n as a sum.
func (t *Table) Terms(n Number) []Term {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.of(n)
	if !ok {
		return []Term{{n, nil}}
	}
	list := make([]Term, len(p))
	for i, m := range p {
		list[i].Factor = m.factor
		for k := 0; k < len(m.of); k += 4 {
			list[i].Of = append(list[i].Of, t.number(poly{{1, m.of[k : k+4]}}))
		}
	}
	return list
}

// Text formats n with the variables as numbers.
func (t *Table) Text(n Number) string {
	if !t.Open(n) {
		return strconv.FormatInt(n, 10)
	}
	var parts []string
	for _, m := range t.Terms(n) {
		s := strconv.FormatInt(m.Factor, 10)
		for _, v := range m.Of {
			s += "*" + t.names()[v]
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, " + ")
}

func (t *Table) names() map[Number]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := map[Number]string{}
	for key, n := range t.byKey {
		if !strings.HasPrefix(key, "poly") {
			list[n] = "{" + key + "}"
		}
	}
	return list
}
