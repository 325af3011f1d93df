package patterns

import "fmt"

// parse reads the text of a pattern file, whose name is used in messages. Views and functions of earlier files may be used,
// and new ones are added to them.
func parse(file, src string, views map[string]*view, functions map[string]*definition) ([]*Pattern, error) {
	toks, err := lex(file, src)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks, views: views, definitions: functions}
	var pats []*Pattern
	err = p.catch(func() {
		for p.peek().kind != tokEOF {
			switch t := p.next(); t.text {
			case "view":
				p.view()
			case "pattern":
				pats = append(pats, p.pattern(t.pos))
			case "function":
				p.definition()
			default:
				p.failf(t.pos, `expected "view", "pattern" or "function", found %s`, t)
			}
		}
	})
	return pats, err
}

// view is a sub-pattern, replaced at every use by its expression.
type view struct {
	params []string
	body   expr
	pos    Pos
}

type parser struct {
	toks        []token
	views       map[string]*view
	definitions map[string]*definition // functions that targets may call

	pat *Pattern // being parsed, nil inside a view
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
	if old := p.views[t.text]; old != nil {
		p.failf(t.pos, "view %s is defined already, at %s", t.text, old.pos)
	}
	if builtinViews[t.text] != nil {
		p.failf(t.pos, "view %s is built in", t.text)
	}
	p.expect("(")
	v := &view{params: p.names("a parameter"), pos: t.pos}
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
	pat.Target = p.target()
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
	if f := pat.Target.call.function; f != nil && len(f.results) != len(pat.Results) {
		p.failf(pat.Target.call.pos, "function %s has %d results, pattern %s has %d", pat.Target.call.name(), len(f.results), pat.Name, len(pat.Results))
	}
	pat.Target.call.walk(func(c *targetCall) {
		for _, a := range c.args {
			if n, ok := a.(*nameExpr); ok {
				if n.slot, ok = pat.slots[n.name]; !ok {
					p.failf(c.pos, "pattern %s: argument %s of the target is not defined", pat.Name, n.name)
				}
			}
		}
	})
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
	pat.Target.call.walk(func(c *targetCall) {
		for _, a := range c.args {
			if l, ok := a.(*listExpr); ok {
				check(l.list)
			}
		}
		for _, a := range c.attrs {
			check(a.expr)
		}
	})
	pat.roots = map[string]bool{}
	rootOps(pat.stmts[pat.Results[0]].expr, pat.roots)
}

// rootOps collects the op types that can stand at the root of an expression.
func rootOps(e expr, ops map[string]bool) {
	switch e := e.(type) {
	case *callExpr:
		if b := builtinViews[e.op]; b != nil {
			for _, op := range b.roots {
				ops[op] = true
			}
			return
		}
		ops[e.op] = true
		if e.op == "Add" {
			ops["Sum"] = true // isOpType
		}
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
