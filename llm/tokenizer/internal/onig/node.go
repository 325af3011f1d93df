package onig

import (
	"fmt"
	"strings"
)

// node is a part of a pattern. write writes it in regexp2's syntax over character classes.
type node interface {
	write(w *writer)
	sets(visit func(set))
}

type (
	char        struct{ set set }
	concat      []node
	alternation []node
	repeat      struct {
		body     node
		min, max int    // max < 0: any number
		suffix   string // "", "?" or "+": greedy, lazy, possessive
	}
	group struct {
		open string // "(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!"
		body node
	}
	anchor string // one of regexp2's: \A, \z
)

// writer writes the pattern that regexp2 compiles.
type writer struct {
	strings.Builder
	classes *classes
}

func (c char) sets(visit func(set)) { visit(c.set) }
func (c char) write(w *writer)      { w.WriteString(w.classes.expression(c.set)) }

func (c concat) sets(visit func(set)) {
	for _, n := range c {
		n.sets(visit)
	}
}

func (c concat) write(w *writer) {
	for _, n := range c {
		n.write(w)
	}
}

func (a alternation) sets(visit func(set)) { concat(a).sets(visit) }

func (a alternation) write(w *writer) {
	w.WriteString("(?:")
	for i, n := range a {
		if i > 0 {
			w.WriteByte('|')
		}
		n.write(w)
	}
	w.WriteByte(')')
}

func (r repeat) sets(visit func(set)) { r.body.sets(visit) }

func (r repeat) write(w *writer) {
	if r.suffix == "+" {
		w.WriteString("(?>")
	}
	if _, ok := r.body.(char); ok {
		r.body.write(w)
	} else {
		group{"(?:", r.body}.write(w)
	}
	if r.max < 0 {
		fmt.Fprintf(w, "{%d,}", r.min)
	} else {
		fmt.Fprintf(w, "{%d,%d}", r.min, r.max)
	}
	if r.suffix == "+" {
		w.WriteByte(')')
	} else {
		w.WriteString(r.suffix)
	}
}

func (g group) sets(visit func(set)) { g.body.sets(visit) }

func (g group) write(w *writer) {
	w.WriteString(g.open)
	g.body.write(w)
	w.WriteByte(')')
}

func (anchor) sets(func(set))    {}
func (a anchor) write(w *writer) { w.WriteString(string(a)) }
