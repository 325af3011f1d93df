package notation

import (
	"strconv"
	"strings"
)

func (p *parser) expr() Expr {
	alt := &Alternatives{}
	p.nested(func() {
		alt.Branches = append(alt.Branches, p.branch())
		for p.accept("|") {
			alt.Branches = append(alt.Branches, p.branch())
		}
	})
	if len(alt.Branches) == 1 && alt.Branches[0].Tag < 0 {
		return alt.Branches[0].Expr
	}
	return alt
}

func (p *parser) branch() Branch {
	b := Branch{Expr: p.term(), Tag: -1}
	if p.accept("as") {
		t := p.name("a name")
		if p.pat == nil {
			p.failf(t.pos, `a view cannot use "as"`)
		}
		i, ok := p.pat.Tags[t.text]
		if !ok {
			i = len(p.pat.Tags)
			p.pat.Tags[t.text] = i
		}
		b.As, b.Tag = t.text, i
	}
	return b
}

func (p *parser) term() Expr {
	t := p.next()
	p.count(t.pos)
	switch {
	case t.kind == tokPunct && t.text == "(":
		e := p.expr()
		p.expect(")")
		return e
	case t.kind == tokPunct && t.text == "_":
		return Wildcard{}
	case t.kind == tokPunct && t.text == "[":
		return &Ints{p.ints()}
	case t.kind == tokNumber, t.kind == tokPunct && t.text == "-":
		return &Number{p.number(t)}
	case t.kind == tokCapture:
		if p.pat == nil {
			return &Capture{Name: t.text, Slot: -1} // bound at each use of the view
		}
		return &Capture{t.text, p.pat.slot(t.text)}
	case t.kind == tokName:
		if p.is("(") || p.is("<") || p.is("?") {
			return p.call(t)
		}
		return &Name{Name: t.text}
	}
	p.failf(t.pos, "expected a node, a name or a number, found %s", t)
	return nil
}

func (p *parser) call(t token) Expr {
	c := &Call{pos: t.pos}
	c.Domain, c.Op = qualified(t.text)
	if p.accept("<") {
		for {
			c.Attrs = append(c.Attrs, p.attrPat())
			if !p.accept(",") {
				break
			}
		}
		p.expect(">")
	}
	c.Optional = p.accept("?")
	p.expect("(")
	p.list(")", func() { c.Args = append(c.Args, p.expr()) })
	if len(c.Args) > maxArgs && Associative[c.Op] {
		p.failf(t.pos, "%s has %d arguments; at most %d can match in any nesting", c.Op, len(c.Args), maxArgs)
	}
	if c.Optional && len(c.Args) == 0 {
		p.failf(t.pos, "an optional node needs an argument to replace it")
	}
	if len(c.Args) > 2 && !Associative[c.Op] && Commutative[c.Op] {
		p.failf(t.pos, "%s takes two arguments here; only Add and Mul match in any nesting", c.Op)
	}
	if n, builtin := p.scope.builtinViews[t.text]; builtin && len(c.Args) != n {
		p.failf(t.pos, "%s takes %d arguments, found %d", t.text, n, len(c.Args))
	}
	if v := p.scope.views[t.text]; v != nil {
		if len(v.params) != len(c.Args) {
			p.failf(t.pos, "view %s takes %d arguments, found %d", t.text, len(v.params), len(c.Args))
		}
		args := map[string]Expr{}
		for i, n := range v.params {
			args[n] = c.Args[i]
		}
		return p.expand(t.pos, v.body, args)
	}
	return c
}

// expand copies the expression of a view with its parameters replaced.
func (p *parser) expand(pos Pos, e Expr, args map[string]Expr) Expr {
	p.count(pos)
	switch e := e.(type) {
	case *Name:
		if a := args[e.Name]; a != nil {
			return a
		}
		return &Name{Name: e.Name}
	case *Capture:
		if p.pat != nil {
			return &Capture{e.Name, p.pat.slot(e.Name)}
		}
	case *Call:
		c := *e
		c.Args = make([]Expr, len(e.Args))
		for i, a := range e.Args {
			c.Args[i] = p.expand(pos, a, args)
		}
		return &c
	case *Alternatives:
		a := &Alternatives{}
		for _, b := range e.Branches {
			a.Branches = append(a.Branches, Branch{p.expand(pos, b.Expr, args), b.As, b.Tag})
		}
		return a
	}
	return e
}

func (p *parser) attrPat() AttrPattern {
	a := AttrPattern{Name: p.name("an attribute").text, Capture: -1}
	p.expect("=")
	switch t := p.next(); {
	case t.kind == tokNumber, t.kind == tokPunct && t.text == "-":
		n := p.number(t)
		a.Number = &n
	case t.kind == tokString, t.kind == tokName:
		a.Text = &t.text
	case t.kind == tokPunct && t.text == "[":
		a.Ints = p.ints()
	case t.kind == tokCapture && p.pat != nil:
		a.As, a.Capture = t.text, p.pat.slot(t.text)
	default:
		p.failf(t.pos, "expected a number, a string, a list or a capture, found %s", t)
	}
	return a
}

func (p *parser) ints() []int64 {
	is := []int64{}
	p.list("]", func() {
		t := p.next()
		x := p.number(t)
		if x != float64(int64(x)) {
			p.failf(t.pos, "expected an integer, found %v", x)
		}
		is = append(is, int64(x))
	})
	return is
}

// number parses a number whose first token, perhaps a minus, is t.
func (p *parser) number(t token) float64 {
	sign := 1.0
	if t.kind == tokPunct && t.text == "-" {
		sign, t = -1, p.next()
	}
	f, err := strconv.ParseFloat(t.text, 64)
	if t.kind != tokNumber || err != nil {
		p.failf(t.pos, "expected a number, found %s", t)
	}
	return sign * f
}

// qualified splits the name of an op: domain.Op.
func qualified(name string) (domain, op string) {
	dot := strings.LastIndexByte(name, '.')
	return name[:max(dot, 0)], name[dot+1:]
}
