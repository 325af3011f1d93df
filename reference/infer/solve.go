package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// difference is two numbers, in each world, that an op requires to be equal but are not.
type difference struct {
	a, b  [Worlds]int64
	fixed bool // b is one number
	joins bool // one of both may be 1
}

// differ gathers the numbers that the rule compares, in all worlds, and records the pairs that are unequal somewhere.
func (an *analysis) differ(c *rules.Call, rule rules.Rule) {
	if len(an.differences) >= rules.MaxDifferences {
		return
	}
	var pairs [Worlds][]rules.Pair
	var buffer [Worlds * 2]rules.Result
	c.Gather = true
	for w := range Worlds {
		c.Pairs = nil
		c.Run(w, rule, buffer[:])
		pairs[w] = c.Pairs
	}
	c.Gather, c.Pairs = false, nil
	for i, p := range pairs[0] {
		d := difference{fixed: p.Fixed, joins: p.Joins}
		unequal, usable := false, true
		for w := range Worlds {
			if i >= len(pairs[w]) {
				usable = false
				break
			}
			p = pairs[w][i]
			d.a[w], d.b[w] = p.A, p.B
			unequal = unequal || p.A != p.B
			usable = usable && p.A > 0 && p.B > 0
		}
		if usable && unequal && !slices.Contains(an.differences, d) {
			an.differences = append(an.differences, d)
		}
	}
}

// exceeds reports whether something fits in the worlds of small numbers but not in the world of large ones, such as a
// short table of positions.
func (an *analysis) exceeds() bool {
	for _, m := range an.Misfits {
		if m == [Worlds]bool{2: true} {
			return true
		}
	}
	return slices.ContainsFunc(an.differences, func(d difference) bool {
		return d.a[0] == d.b[0] && d.a[1] == d.b[1] && d.a[2] != d.b[2]
	})
}

// solve defines free symbols such that recorded differences vanish. It reports whether it defined any: then the
// analysis must restart.
func (an *analysis) solve() bool {
	changed := false
	slices.SortStableFunc(an.differences, func(a, b difference) int {
		if a.joins == b.joins {
			return 0
		} else if b.joins {
			return -1
		}
		return 1
	})
	for _, d := range an.differences {
		if e := an.symbols.read(d.a); d.fixed && e != nil && e.op == 's' {
			e.sym.def, changed = ofNumber(d.b[0]), true
			an.symbols.retired = append(an.symbols.retired, e.sym)
		} else if s, e := an.symbols.equate(d.a, d.b, false); s != nil {
			s.def, s.guessed = e, d.joins
			// The numbers of this pass predate the change: with one symbol changed, later differences that stem from it
			// would be misread. Those that contain it are left to the next pass.
			an.symbols.retired = append(an.symbols.retired, s)
			changed = true
		}
	}
	an.symbols.retired = nil
	for _, equate := range []func(d difference) (*symbol, *expr){
		func(d difference) (*symbol, *expr) { return an.symbols.equate(d.a, d.b, true) },
		func(d difference) (*symbol, *expr) { return an.symbols.correct(d.a, d.b) },
		func(d difference) (*symbol, *expr) { return an.symbols.correct(d.b, d.a) },
	} {
		for _, d := range an.differences {
			if changed {
				return true
			}
			if s, e := equate(d); s != nil {
				s.def, s.guessed, s.declared, changed = e, d.joins, false, true
			}
		}
	}
	return changed
}

// correct finds a symbol with the numbers a whose name is an expression, and the expression it must be instead to get
// the numbers b: exporters name the length of a mask "past + 1" after a trace with one new position.
func (t *symbols) correct(a, b [Worlds]int64) (*symbol, *expr) {
	e := t.read(b)
	if e == nil || e.constant() {
		return nil, nil
	}
	for _, s := range t.list {
		if s.declared && s.at(0) == a[0] && s.at(1) == a[1] && s.at(2) == a[2] && !e.uses(s) {
			return s, e
		}
	}
	return nil, nil
}

// equate finds a free symbol s and the expression for it that makes the numbers a and b equal, or nil. A symbol never
// becomes a constant: if the graph runs only with one number, that is a fault of the graph. Numbers that are not an
// expression of symbols make a weak definition, which is tried only as a last resort.
func (t *symbols) equate(a, b [Worlds]int64, weak bool) (*symbol, *expr) {
	ea, eb := t.read(a), t.read(b)
	if ea == nil && eb == nil || ea != nil && ea.op == 'k' || eb != nil && eb.op == 'k' {
		return nil, nil
	}
	if !weak && (ea == nil || eb == nil) {
		return nil, nil
	}
	// A symbol against another: the earlier one stays.
	if ea != nil && eb != nil && ea.op == 's' && eb.op == 's' && ea.sym.order < eb.sym.order {
		ea, eb, a, b = eb, ea, b, a
	}
	// A bare symbol is easier to change than a compound.
	if ea == nil || ea.op != 's' && eb != nil && eb.op == 's' {
		ea, eb, a, b = eb, ea, b, a
	}
	// But with one symbol on either side the earlier one stays, as above.
	if ea.op == 's' && eb != nil && eb.b != nil && eb.b.op == 'k' && ea.sym.order < eb.a.sym.order {
		ea, eb, a, b = eb, ea, b, a
	}
	if s, e := t.define(ea, eb, b); s != nil {
		return s, e
	}
	if eb != nil {
		return t.define(eb, ea, a)
	}
	return nil, nil
}

// define solves ea = b for a free symbol of ea. eb is b as an expression, nil if b is only numbers.
func (t *symbols) define(ea, eb *expr, b [Worlds]int64) (*symbol, *expr) {
	if eb == nil {
		eb = &expr{op: 'k', k: b}
	}
	if ea.op == 's' {
		return t.accept(ea.sym, eb)
	}
	if ea.op == 'k' {
		return nil, nil
	}
	x, y := ea.a, ea.b
	// The same operand on both sides: the others are equal.
	if eb.op == ea.op && eb.op != '/' {
		for _, p := range [][4]*expr{{x, y, eb.a, eb.b}, {x, y, eb.b, eb.a}, {y, x, eb.a, eb.b}, {y, x, eb.b, eb.a}} {
			if p[0].op == p[2].op && p[0].sym == p[2].sym && p[0].k == p[2].k && p[1].op == 's' {
				u, v := p[1], p[3]
				if v.op == 's' && u.sym.order < v.sym.order {
					u, v = v, u
				}
				if s, e := t.accept(u.sym, v); s != nil {
					return s, e
				}
			}
		}
	}
	type way struct {
		s *expr
		e *expr
	}
	var ways []way
	switch ea.op {
	case '+':
		ways = []way{{x, &expr{op: '-', a: eb, b: y}}, {y, &expr{op: '-', a: eb, b: x}}}
	case '-':
		ways = []way{{x, &expr{op: '+', a: eb, b: y}}, {y, &expr{op: '-', a: x, b: eb}}}
	case '*':
		ways = []way{{x, exact(eb, y)}, {y, exact(eb, x)}}
	}
	// The later symbol is the likelier to be the derived one.
	if len(ways) == 2 && ways[0].s.op == 's' && ways[1].s.op == 's' && ways[0].s.sym.order < ways[1].s.sym.order {
		ways[0], ways[1] = ways[1], ways[0]
	}
	for _, w := range ways {
		if w.s.op == 's' && w.e != nil {
			if s, e := t.accept(w.s.sym, w.e); s != nil {
				return s, e
			}
		}
	}
	return nil, nil
}

// exact returns e / d if that leaves no remainder in any world.
func exact(e, d *expr) *expr {
	for w := range Worlds {
		if n := d.at(w); n == 0 || e.at(w)%n != 0 {
			return nil
		}
	}
	return &expr{op: '/', a: e, b: d}
}

// hint takes a declared dimension of an output with the name of an input's dimension, computed from others, as the
// definition of the input's dimension: "total" where past and new positions are joined. It reports whether it learned
// anything.
func (an *analysis) hint(f *Facts) bool {
	learned := an.rowsPicked(f)
	for _, v := range an.model.Graph.Outputs {
		decl, ok := v.Type()
		rank, known := f.Rank(v)
		if !ok || !known || len(decl.Dims) != rank {
			continue
		}
		for i, d := range decl.Dims {
			s := an.symbols.byName[d.Param]
			if s == nil || !s.free() {
				continue
			}
			var n [Worlds]int64
			for w := range n {
				n[w] = f.of(v).Shape[w][i]
			}
			if e := an.symbols.read(n); e != nil && e.op != 's' && e.op != 'k' {
				if s, e = an.symbols.accept(s, e); s != nil {
					s.def, learned = e, true
				}
			}
		}
	}
	return learned
}

// accept checks a definition: the symbol must be free, and the expression positive, not constant, and of other symbols
// that have not been redefined in this round.
func (t *symbols) accept(s *symbol, e *expr) (*symbol, *expr) {
	if !s.free() || e.uses(s) || !e.positive() || e.constant() {
		return nil, nil
	}
	for _, r := range t.retired {
		if e.uses(r) {
			return nil, nil
		}
	}
	return s, e
}

// read finds the simplest expression of free symbols with these numbers: S, S+n, S*n, S+T, S-T, S*T. The numbers of
// three worlds make a chance match unlikely. It returns nil if there is none, and a number for a constant.
func (t *symbols) read(n [Worlds]int64) *expr {
	if n[0] == n[1] && n[0] == n[2] {
		return ofNumber(n[0])
	}
	var free []*symbol
	for _, s := range t.list {
		if s.free() {
			if s.start == n {
				return ofSymbol(s)
			}
			free = append(free, s)
		}
	}
	for _, s := range free {
		d := n[0] - s.start[0]
		if n[1]-s.start[1] == d && n[2]-s.start[2] == d {
			return &expr{op: '+', a: ofSymbol(s), b: ofNumber(d)}
		}
		q := n[2] / max(s.start[2], 1)
		if q > 1 && q*s.start[0] == n[0] && q*s.start[1] == n[1] && q*s.start[2] == n[2] {
			return &expr{op: '*', a: ofSymbol(s), b: ofNumber(q)}
		}
	}
	for i, s := range free {
		for j, u := range free {
			for _, op := range []byte("+*-") {
				if op != '-' && j < i {
					continue
				}
				if e := (&expr{op: op, a: ofSymbol(s), b: ofSymbol(u)}); e.at(0) == n[0] && e.at(1) == n[1] &&
					e.at(2) == n[2] {
					return e
				}
			}
		}
	}
	return nil
}

// rowsPicked takes hints from nodes that pick elements of a tensor, such as the mask of a given sequence. If they pick
// each place of an axis in order, and as many as another length, a symbol that is only that axis is this length.
func (an *analysis) rowsPicked(f *Facts) bool {
	for _, n := range an.model.Graph.Nodes {
		if !n.Is("GatherND") || n.AttrInt("batch_dims", 0) != 0 || len(n.Inputs) != 2 {
			continue
		}
		data, indices := f.of(n.Inputs[0]).Shape, f.of(n.Inputs[1]).Shape
		if len(data[0]) == 0 || len(indices[0]) == 0 {
			continue
		}
		for axis := range indices[0][len(indices[0])-1] {
			if int(axis) >= len(data[0]) {
				break
			}
			have := sizesOf(data, int(axis))
			e := an.symbols.read(have)
			if e == nil || e.op != 's' || !e.sym.free() {
				continue
			}
			for k := range indices[0][:len(indices[0])-1] {
				want := sizesOf(indices, k)
				if have == want || !f.counts(n.Inputs[1], int(axis), want) {
					continue
				}
				if s, d := an.symbols.equate(have, want, false); s != nil {
					s.def = d
					return true
				}
			}
		}
	}
	return false
}

// sizesOf returns a dimension in all worlds, -1 if it does not exist.
func sizesOf(shape [rules.AllWorlds][]int64, axis int) (size [Worlds]int64) {
	for w, s := range shape[:Worlds] {
		size[w] = -1
		if axis < len(s) {
			size[w] = s[axis]
		}
	}
	return size
}

// counts reports whether the last axis of v has, at a place, the numbers from 0 up to size, in the worlds whose numbers
// are followed.
func (f *Facts) counts(v *onnx.Value, place int, size [Worlds]int64) bool {
	followed := 0
	for w := range Worlds {
		t, ok := f.Known(v, w)
		if !ok || len(t.I) == 0 {
			continue
		}
		followed++
		last, step := int64(0), t.Shape[len(t.Shape)-1]
		for i := place; i < len(t.I); i += step {
			last = max(last, t.I[i])
		}
		if last != size[w]-1 {
			return false
		}
	}
	return followed > 1
}
