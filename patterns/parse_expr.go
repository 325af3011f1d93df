package patterns

import "strconv"

func (p *parser) expr() expr {
	alt := &altExpr{branches: []branch{p.branch()}}
	for p.accept("|") {
		alt.branches = append(alt.branches, p.branch())
	}
	if len(alt.branches) == 1 && alt.branches[0].tag < 0 {
		return alt.branches[0].expr
	}
	return alt
}

func (p *parser) branch() branch {
	b := branch{p.term(), -1}
	if p.accept("as") {
		t := p.name("a name")
		if p.pat == nil {
			p.failf(t.pos, `a view has no "as"`)
		}
		i, ok := p.pat.tags[t.text]
		if !ok {
			i = len(p.pat.tags)
			p.pat.tags[t.text] = i
		}
		b.tag = i
	}
	return b
}

func (p *parser) term() expr {
	t := p.next()
	switch {
	case t.kind == tokPunct && t.text == "(":
		e := p.expr()
		p.expect(")")
		return e
	case t.kind == tokPunct && t.text == "_":
		return wildcardExpr{}
	case t.kind == tokPunct && t.text == "[":
		return &intsExpr{p.ints()}
	case t.kind == tokNumber, t.kind == tokPunct && t.text == "-":
		return &numberExpr{p.number(t)}
	case t.kind == tokCapture:
		if p.pat == nil {
			return &captureExpr{name: t.text, slot: -1} // bound where the view is used
		}
		return &captureExpr{t.text, p.pat.slot(t.text)}
	case t.kind == tokName:
		if p.is("(") || p.is("<") || p.is("?") {
			return p.call(t)
		}
		return &nameExpr{name: t.text}
	}
	p.failf(t.pos, "expected a node, a name or a number, found %s", t)
	return nil
}

func (p *parser) call(t token) expr {
	dot := lastDot(t.text)
	c := &callExpr{op: t.text[dot+1:], pos: t.pos}
	if dot >= 0 {
		c.domain = t.text[:dot]
	}
	if p.accept("<") {
		for {
			c.attrs = append(c.attrs, p.attrPat())
			if !p.accept(",") {
				break
			}
		}
		p.expect(">")
	}
	c.optional = p.accept("?")
	p.expect("(")
	if !p.is(")") {
		c.args = append(c.args, p.expr())
		for p.accept(",") {
			c.args = append(c.args, p.expr())
		}
	}
	p.expect(")")
	if c.optional && len(c.args) == 0 {
		p.failf(t.pos, "an optional node needs an argument to stand in its place")
	}
	if len(c.args) > 2 && !associative[c.op] && commutative[c.op] {
		p.failf(t.pos, "%s takes two arguments here; only Add and Mul are matched however they are nested", c.op)
	}
	if b := builtinViews[t.text]; b != nil && len(c.args) != b.args {
		p.failf(t.pos, "%s takes %d arguments, found %d", t.text, b.args, len(c.args))
	}
	if v := p.views[t.text]; v != nil {
		if len(v.params) != len(c.args) {
			p.failf(t.pos, "view %s takes %d arguments, found %d", t.text, len(v.params), len(c.args))
		}
		args := map[string]expr{}
		for i, n := range v.params {
			args[n] = c.args[i]
		}
		return p.expand(v.body, args)
	}
	return c
}

// expand copies the expression of a view with its parameters replaced.
func (p *parser) expand(e expr, args map[string]expr) expr {
	switch e := e.(type) {
	case *nameExpr:
		if a := args[e.name]; a != nil {
			return a
		}
		return &nameExpr{name: e.name}
	case *captureExpr:
		if p.pat != nil {
			return &captureExpr{e.name, p.pat.slot(e.name)}
		}
	case *callExpr:
		c := *e
		c.args = make([]expr, len(e.args))
		for i, a := range e.args {
			c.args[i] = p.expand(a, args)
		}
		return &c
	case *altExpr:
		a := &altExpr{}
		for _, b := range e.branches {
			a.branches = append(a.branches, branch{p.expand(b.expr, args), b.tag})
		}
		return a
	}
	return e
}

func (p *parser) attrPat() attrPat {
	a := attrPat{name: p.name("an attribute").text, capture: -1}
	p.expect("=")
	switch t := p.next(); {
	case t.kind == tokNumber, t.kind == tokPunct && t.text == "-":
		n := p.number(t)
		a.number = &n
	case t.kind == tokString, t.kind == tokName:
		a.text = &t.text
	case t.kind == tokPunct && t.text == "[":
		a.ints = p.ints()
	case t.kind == tokCapture && p.pat != nil:
		a.capture = p.pat.slot(t.text)
	default:
		p.failf(t.pos, "expected a number, a string, a list or a capture, found %s", t)
	}
	return a
}

func (p *parser) ints() []int64 {
	is := []int64{}
	for !p.accept("]") {
		t := p.next()
		x := p.number(t)
		if x != float64(int64(x)) {
			p.failf(t.pos, "expected an integer, found %v", x)
		}
		is = append(is, int64(x))
		if !p.is("]") {
			p.expect(",")
		}
	}
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

func lastDot(s string) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '.' {
			return i
		}
	}
	return -1
}
