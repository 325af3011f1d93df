package term

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// poly is a sum of monomials with different variables, in the order of the variables.
type poly []monomial

// monomial is a nonzero factor times a product of variables in ascending order, four bytes each.
type monomial struct {
	factor int64
	of     string
}

// Polynomials beyond these bounds become a variable.
const (
	mostMonomials = 24
	mostVariables = 12
)

func (m monomial) variables() []uint32 {
	list := make([]uint32, len(m.of)/4)
	for i := range list {
		list[i] = binary.BigEndian.Uint32([]byte(m.of[4*i:]))
	}
	return list
}

// variables returns the list of one variable.
func variables(v uint32) string { return string(binary.BigEndian.AppendUint32(nil, v)) }

func (p poly) constant() (n int64, ok bool) {
	switch {
	case len(p) == 0:
		return 0, true
	case len(p) == 1 && p[0].of == "":
		return p[0].factor, true
	}
	return 0, false
}

func (p poly) key() string {
	var b strings.Builder
	b.WriteString("poly")
	for _, m := range p {
		fmt.Fprintf(&b, " %d*%x", m.factor, m.of)
	}
	return b.String()
}

// normal sorts monomials and merges those with the same variables; ok is false if the result exceeds the bounds.
func normal(p poly) (q poly, ok bool) {
	slices.SortFunc(p, func(a, b monomial) int { return compare(a.of, b.of) })
	for _, m := range p {
		if k := len(q) - 1; k >= 0 && q[k].of == m.of {
			q[k].factor += m.factor
		} else {
			q = append(q, m)
		}
		if k := len(q) - 1; q[k].factor <= -plain || q[k].factor >= plain || len(q[k].of) > 4*mostVariables {
			return nil, false
		}
	}
	q = slices.DeleteFunc(q, func(m monomial) bool { return m.factor == 0 })
	return q, len(q) <= mostMonomials
}

// compare orders monomials by their number of variables, then by the variables; products keep this order.
func compare(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

func sum(p, q poly, sign int64) (poly, bool) {
	all := slices.Clone(p)
	for _, m := range q {
		all = append(all, monomial{sign * m.factor, m.of})
	}
	return normal(all)
}

func product(p, q poly) (poly, bool) {
	if len(p)*len(q) > 4*mostMonomials {
		return nil, false
	}
	var all poly
	for _, a := range p {
		for _, b := range q {
			m := monomial{a.factor * b.factor, joined(a.of, b.of)}
			if b.factor != 0 && m.factor/b.factor != a.factor || m.factor <= -plain || m.factor >= plain {
				return nil, false
			}
			all = append(all, m)
		}
	}
	return normal(all)
}

// joined merges two sorted lists of variables.
func joined(a, b string) string {
	list := append(monomial{of: a}.variables(), monomial{of: b}.variables()...)
	slices.Sort(list)
	var out []byte
	for _, v := range list {
		out = binary.BigEndian.AppendUint32(out, v)
	}
	return string(out)
}

// quotient divides p by q; ok is false if there is a remainder.
func quotient(p, q poly) (poly, bool) {
	if len(q) == 0 {
		return nil, false
	}
	head := q[len(q)-1]
	var out poly
	for len(p) > 0 {
		last := p[len(p)-1]
		of, divides := without(last.of, head.of)
		if !divides || last.factor%head.factor != 0 {
			return nil, false
		}
		m := monomial{last.factor / head.factor, of}
		part, ok := product(poly{m}, q)
		if !ok {
			return nil, false
		}
		if p, ok = sum(p, part, -1); !ok {
			return nil, false
		}
		if out = append(out, m); len(out) > mostMonomials {
			return nil, false
		}
	}
	return normal(out)
}

// without removes variables from a list; ok is false if one is missing.
func without(from, list string) (rest string, ok bool) {
	left := monomial{of: from}.variables()
	for _, v := range (monomial{of: list}).variables() {
		i := slices.Index(left, v)
		if i < 0 {
			return "", false
		}
		left = slices.Delete(left, i, i+1)
	}
	var out []byte
	for _, v := range left {
		out = binary.BigEndian.AppendUint32(out, v)
	}
	return string(out), true
}

// parts splits p into multiples of n and a rest whose factors are in [0, n).
func (p poly) parts(n int64) (whole, rest poly) {
	for _, m := range p {
		q, r := m.factor/n, m.factor%n
		if r < 0 {
			q, r = q-1, r+n
		}
		if q != 0 {
			whole = append(whole, monomial{q, m.of})
		}
		if r != 0 {
			rest = append(rest, monomial{r, m.of})
		}
	}
	return whole, rest
}
