package patterns

import (
	"fmt"
	"strconv"
)

// Parse reads pattern files' text; file is used in messages. Views may come from earlier files of the same Set.
func parse(file, src string, views map[string]*view) ([]*Pattern, error) {
	toks, err := lex(file, src)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks, views: views}
	var pats []*Pattern
	err = p.catch(func() {
		for p.peek().kind != tokEOF {
			switch t := p.next(); t.text {
			case "view":
				p.view()
			case "pattern":
				pats = append(pats, p.pattern(t.pos))
			default:
				p.failf(t.pos, `expected "view" or "pattern", found %s`, t)
			}
		}
	})
	return pats, err
}

// view is a sub-pattern, replaced at every use by its expression.
type view struct {
	params []string
	body   expr
}

type parser struct {
	toks  []token
	views map[string]*view

	pat  *Pattern        // being parsed, nil inside a view
	args map[string]expr // arguments of the view being expanded
}

// catch turns the parser's panics of *Error, which never leave this package, into errors.
func (p *parser) catch(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			err = e
		}
	}()
	f()
	return nil
}

func (p *parser) failf(pos Pos, format string, args ...any) {
	panic(&Error{pos, fmt.Sprintf(format, args...)})
}

func (p *parser) peek() token { return p.toks[0] }

func (p *parser) next() token {
	t := p.toks[0]
	if t.kind != tokEOF {
		p.toks = p.toks[1:]
	}
	return t
}

func (p *parser) is(text string) bool {
	t := p.peek()
	return (t.kind == tokPunct || t.kind == tokName) && t.text == text
}

func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(text string) token {
	t := p.next()
	if t.kind != tokPunct && t.kind != tokName || t.text != text {
		p.failf(t.pos, "expected %q, found %s", text, t)
	}
	return t
}

func (p *parser) name(what string) token {
	t := p.next()
	if t.kind != tokName {
		p.failf(t.pos, "expected %s, found %s", what, t)
	}
	return t
}

func (p *parser) names(what string) []string {
	ns := []string{p.name(what).text}
	for p.accept(",") {
		ns = append(ns, p.name(what).text)
	}
	return ns
}

func (p *parser) view() {
	t := p.name("the name of a view")
	if p.views[t.text] != nil || builtinViews[t.text] {
		p.failf(t.pos, "view %s is defined twice", t.text)
	}
	p.expect("(")
	v := &view{params: p.names("a parameter")}
	p.expect(")")
	p.expect("=")
	v.body = p.expr()
	p.views[t.text] = v
}

func (p *parser) pattern(pos Pos) *Pattern {
	pat := &Pattern{Pos: pos, stmts: map[string]*stmt{}, slots: map[string]int{}, tags: map[string]int{}}
	p.pat = pat
	pat.Name = p.name("the name of a pattern").text
	p.expect("(")
	pat.Params = p.names("a parameter")
	for _, n := range pat.Params {
		pat.slot(n)
	}
	p.expect(")")
	p.expect("->")
	pat.Results = p.names("a result")
	p.expect("{")
	if p.accept("anchor") {
		pat.Anchors = p.names("an op")
	}
	for !p.is("}") && !p.is("where") {
		p.statement()
	}
	if p.accept("where") {
		pat.where = p.conjuncts()
	}
	p.expect("}")
	p.expect("=>")
	p.target()
	p.finish()
	p.pat = nil
	return pat
}

func (p *parser) statement() {
	pos := p.peek().pos
	s := &stmt{pos: pos, names: p.names("a name")}
	for _, n := range s.names {
		if p.pat.stmts[n] != nil {
			p.failf(pos, "%s is defined twice", n)
		}
		for _, param := range p.pat.Params {
			if param == n {
				p.failf(pos, "%s is a parameter", n)
			}
		}
	}
	p.expect("=")
	s.expr = p.expr()
	if _, call := s.expr.(*callExpr); len(s.names) > 1 && !call {
		p.failf(pos, "several names need one node on the right side")
	}
	for _, n := range s.names {
		p.pat.stmts[n] = s
		p.pat.slot(n)
	}
}

func (p *parser) target() {
	t := p.name("domain.Op")
	dot := lastDot(t.text)
	p.pat.Target = Target{Op: t.text[dot+1:]}
	if dot >= 0 {
		p.pat.Target.Domain = t.text[:dot]
	}
	p.expect("(")
	p.pat.Target.Args = p.names("an argument")
	if p.accept(";") {
		for {
			n := p.name("an attribute")
			p.expect("=")
			p.pat.Target.attrs = append(p.pat.Target.attrs, targetAttr{n.text, p.cond()})
			if !p.accept(",") {
				break
			}
		}
	}
	p.expect(")")
}

// finish resolves names: statements may be written in any order as long as none needs itself.
func (p *parser) finish() {
	pat := p.pat
	state := map[*stmt]int{}
	var resolve func(e expr)
	resolve = func(e expr) {
		switch e := e.(type) {
		case *nameExpr:
			e.slot = pat.slot(e.name)
			if s := pat.stmts[e.name]; s != nil {
				e.def = s
				for i, n := range s.names {
					if n == e.name {
						e.output = i
					}
				}
				if len(s.names) == 1 {
					e.output = -1
				}
				if state[s] == 1 {
					p.failf(s.pos, "%s is defined by itself", e.name)
				}
				if state[s] == 0 {
					state[s] = 1
					resolve(s.expr)
					state[s] = 2
				}
			}
		case *callExpr:
			for _, a := range e.args {
				resolve(a)
			}
		case *altExpr:
			for _, b := range e.branches {
				resolve(b.expr)
			}
		}
	}
	for _, s := range pat.stmts {
		if state[s] == 0 {
			state[s] = 1
			resolve(s.expr)
			state[s] = 2
		}
	}
	for _, n := range pat.Results {
		if pat.stmts[n] == nil {
			p.failf(pat.Pos, "result %s of pattern %s is defined by no statement", n, pat.Name)
		}
	}
	for _, n := range pat.Target.Args {
		if _, ok := pat.slots[n]; !ok {
			p.failf(pat.Pos, "pattern %s: argument %s of the target is not defined", pat.Name, n)
		}
	}
	check := func(e condExpr) {
		e.walk(func(c condExpr) {
			n, ok := c.(*condName)
			if !ok {
				return
			}
			_, slot := pat.slots[n.name]
			_, n.isTag = pat.tags[n.name]
			if !slot && !n.isTag {
				p.failf(n.pos, "%s is not defined in pattern %s", n.name, pat.Name)
			}
		})
	}
	for _, c := range pat.where {
		check(c.expr)
	}
	for _, a := range pat.Target.attrs {
		check(a.expr)
	}
	pat.roots = map[string]bool{}
	rootOps(pat.stmts[pat.Results[0]].expr, pat.roots)
}

// rootOps collects the op types that can stand at the root of an expression.
func rootOps(e expr, ops map[string]bool) {
	switch e := e.(type) {
	case *callExpr:
		if builtinViews[e.op] {
			ops["Slice"], ops["Split"] = true, true
			return
		}
		ops[e.op] = true
		if e.optional {
			rootOps(e.args[0], ops)
		}
	case *nameExpr:
		if e.def != nil {
			rootOps(e.def.expr, ops)
		}
	case *altExpr:
		for _, b := range e.branches {
			rootOps(b.expr, ops)
		}
	}
}

func (pat *Pattern) slot(name string) int {
	s, ok := pat.slots[name]
	if !ok {
		s = len(pat.slots)
		pat.slots[name] = s
	}
	return s
}

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
	if builtinViews[t.text] && len(c.args) != 1 {
		p.failf(t.pos, "%s takes one argument", t.text)
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
		is = append(is, int64(p.number(t)))
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
