package formula

import (
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strings"
)

// A Var is an integer that a formula depends on: a place, a size, an element of a mask, or a rounded quotient.
type Var struct {
	name string
	id   int
	// quotient is the numerator if the variable is the floor of quotient / by; nil for other variables.
	quotient *Sum
	by       int64
	// natural is set if the variable is at least 0.
	natural bool
	// truth is set if the variable is 0 or 1.
	truth bool
}

// String returns the name.
func (v *Var) String() string { return v.name }

// term is a number times a product of variables.
type term struct {
	vars []*Var // in the order of their ids
	n    *big.Rat
}

func (t term) key() string {
	var b strings.Builder
	for _, v := range t.vars {
		fmt.Fprintf(&b, "%d,", v.id)
	}
	return b.String()
}

// A Sum is a polynomial of variables. Sums are immutable; the zero value is 0.
type Sum struct{ terms []term } // by key; the constant, "", comes first

// Number returns a constant sum.
func Number(n int64) *Sum { return constantSum(big.NewRat(n, 1)) }

func constantSum(n *big.Rat) *Sum {
	if n.Sign() == 0 {
		return &Sum{}
	}
	return &Sum{[]term{{nil, n}}}
}

// Of returns the sum that is one variable.
func Of(v *Var) *Sum { return &Sum{[]term{{[]*Var{v}, big.NewRat(1, 1)}}} }

// constant returns the number that the sum is; ok is false if it is not constant.
func (s *Sum) constant() (*big.Rat, bool) {
	switch {
	case len(s.terms) == 0:
		return new(big.Rat), true
	case len(s.terms) == 1 && len(s.terms[0].vars) == 0:
		return s.terms[0].n, true
	}
	return nil, false
}

// Int returns the integer that the sum is; ok is false for other sums.
func (s *Sum) Int() (int64, bool) {
	n, ok := s.constant()
	if !ok || !n.IsInt() || !n.Num().IsInt64() {
		return 0, false
	}
	return n.Num().Int64(), true
}

// String formats the sum, for example "queries + past - 1".
func (s *Sum) String() string {
	if len(s.terms) == 0 {
		return "0"
	}
	var b strings.Builder
	for i, t := range s.terms {
		n := t.n
		switch {
		case n.Sign() < 0 && i > 0:
			b.WriteString(" - ")
			n = new(big.Rat).Neg(n)
		case i > 0:
			b.WriteString(" + ")
		}
		names := make([]string, len(t.vars))
		for k, v := range t.vars {
			names[k] = v.name
		}
		switch product := strings.Join(names, "*"); {
		case product == "":
			b.WriteString(n.RatString())
		case n.Cmp(big.NewRat(1, 1)) == 0:
			b.WriteString(product)
		default:
			b.WriteString(n.RatString() + "*" + product)
		}
	}
	return b.String()
}

// Key identifies a sum of the variables of one Prover, whose names need not be unique.
func (s *Sum) Key() string {
	var b strings.Builder
	for _, t := range s.terms {
		b.WriteString(t.n.RatString() + "*" + t.key() + "+")
	}
	return b.String()
}

// collected returns the sum of terms.
func collected(list []term) *Sum {
	byKey := map[string]*term{}
	var keys []string
	for _, t := range list {
		key := t.key()
		if have := byKey[key]; have != nil {
			have.n = new(big.Rat).Add(have.n, t.n)
			continue
		}
		byKey[key] = &term{t.vars, t.n}
		keys = append(keys, key)
	}
	sort.Strings(keys)
	s := &Sum{}
	for _, key := range keys {
		if t := byKey[key]; t.n.Sign() != 0 {
			s.terms = append(s.terms, *t)
		}
	}
	return s
}

// Plus returns s + o.
func (s *Sum) Plus(o *Sum) *Sum { return collected(slices.Concat(s.terms, o.terms)) }

// Minus returns s - o.
func (s *Sum) Minus(o *Sum) *Sum { return s.Plus(o.scaled(big.NewRat(-1, 1))) }

// Times returns s * n.
func (s *Sum) Times(n int64) *Sum { return s.scaled(big.NewRat(n, 1)) }

func (s *Sum) scaled(by *big.Rat) *Sum {
	if by.Sign() == 0 {
		return &Sum{}
	}
	list := make([]term, len(s.terms))
	for i, t := range s.terms {
		list[i] = term{t.vars, new(big.Rat).Mul(t.n, by)}
	}
	return &Sum{list}
}

// Product returns the product of two sums of a few terms. It panics if there are too many.
func Product(s, o *Sum) *Sum {
	p, ok := s.product(o)
	if !ok {
		panic("formula: a product of too many terms")
	}
	return p
}

// product returns s * o; ok is false if it has too many factors or terms.
func (s *Sum) product(o *Sum) (p *Sum, ok bool) {
	const most = 16
	if len(s.terms)*len(o.terms) > most {
		return nil, false
	}
	var list []term
	for _, t := range s.terms {
		for _, u := range o.terms {
			vars := slices.Concat(t.vars, u.vars)
			if len(vars) > 4 {
				return nil, false
			}
			slices.SortFunc(vars, func(a, b *Var) int { return a.id - b.id })
			list = append(list, term{vars, new(big.Rat).Mul(t.n, u.n)})
		}
	}
	return collected(list), true
}

// integral reports whether the sum has integer coefficients, so that all its values are integers.
func (s *Sum) integral() bool {
	return !slices.ContainsFunc(s.terms, func(t term) bool { return !t.n.IsInt() })
}

// Equal reports whether two sums are the same polynomial.
func (s *Sum) Equal(o *Sum) bool {
	return slices.EqualFunc(s.terms, o.terms, func(t, u term) bool {
		return slices.Equal(t.vars, u.vars) && t.n.Cmp(u.n) == 0
	})
}

// has reports whether the sum depends on a variable.
func (s *Sum) has(v *Var) bool {
	return slices.ContainsFunc(s.terms, func(t term) bool { return slices.Contains(t.vars, v) })
}
