package notation

import (
	"fmt"
	"maps"
	"slices"
)

// A Scope holds the names that pattern files may use: the built-in views and the functions of conditions, each with the
// number of its arguments, and the views and functions that the files parsed so far define.
type Scope struct {
	builtinViews map[string]int
	conditions   map[string]int
	views        map[string]*view
	definitions  map[string]*Definition
}

// NewScope returns a scope with the given built-in views and functions of conditions, with their numbers of arguments.
func NewScope(builtinViews, conditions map[string]int) *Scope {
	return &Scope{builtinViews, conditions, map[string]*view{}, map[string]*Definition{}}
}

// Clone returns a copy in which other files can be parsed.
func (s *Scope) Clone() *Scope {
	return &Scope{s.builtinViews, s.conditions, maps.Clone(s.views), maps.Clone(s.definitions)}
}

// Defines reports whether a file defined the function.
func (s *Scope) Defines(domain, name string) bool { return s.definitions[domain+"."+name] != nil }

// Parse returns the patterns of a file, whose name is used in messages. Errors are of type *Error. Parse adds the views
// and functions of the file to the scope.
func (s *Scope) Parse(file, src string) ([]*Pattern, error) {
	toks, err := lex(file, src)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks, scope: s}
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

// view is a sub-pattern, which its expression replaces at every use.
type view struct {
	params []string
	body   Expr
	pos    Pos
}

type parser struct {
	toks  []token
	scope *Scope
	pat   *Pattern // being parsed, nil inside a view

	depth, made, followed int // see limits.go
}

// catch turns panics with an *Error, which never leave this package, into errors.
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

// list parses items with commas between them, up to end.
func (p *parser) list(end string, item func()) {
	for !p.accept(end) {
		if item(); !p.is(end) && !p.accept(",") {
			t := p.next()
			p.failf(t.pos, "expected \",\" or %q, found %s", end, t)
		}
	}
}

func (p *parser) names(what string) []string {
	ns := []string{p.name(what).text}
	for p.accept(",") {
		t := p.name(what)
		if ns = append(ns, t.text); len(ns) > maxNames {
			p.failf(t.pos, "more than %d names in a list", maxNames)
		}
	}
	return ns
}

func (p *parser) view() {
	t := p.name("the name of a view")
	if old := p.scope.views[t.text]; old != nil {
		p.failf(t.pos, "view %s is defined already, at %s", t.text, old.pos)
	}
	if _, builtin := p.scope.builtinViews[t.text]; builtin {
		p.failf(t.pos, "view %s is built in", t.text)
	}
	p.expect("(")
	v := &view{params: p.names("a parameter"), pos: t.pos}
	p.expect(")")
	p.expect("=")
	v.body = p.expr()
	p.scope.views[t.text] = v
}

func (p *parser) pattern(pos Pos) *Pattern {
	pat := &Pattern{Pos: pos, stmts: map[string]*Statement{}, Slots: map[string]int{}, Tags: map[string]int{}}
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
		pat.Where = p.conjuncts()
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
	s := &Statement{pos: pos, Names: p.names("a name")}
	if len(p.pat.Body) == maxStatements {
		p.failf(pos, "pattern %s has more than %d statements", p.pat.Name, maxStatements)
	}
	for _, n := range s.Names {
		if p.pat.stmts[n] != nil {
			p.failf(pos, "%s is defined twice", n)
		}
		if slices.Contains(p.pat.Params, n) {
			p.failf(pos, "%s is a parameter", n)
		}
	}
	p.expect("=")
	s.Expr = p.expr()
	if _, call := s.Expr.(*Call); len(s.Names) > 1 && !call {
		p.failf(pos, "several names need a node on the right side")
	}
	for _, n := range s.Names {
		p.pat.stmts[n] = s
		p.pat.slot(n)
	}
	p.pat.Body = append(p.pat.Body, s)
}

// finish resolves names. Statements may be in any order, but must not depend on themselves.
func (p *parser) finish() {
	pat := p.pat
	state := map[*Statement]int{}
	var resolve func(e Expr)
	define := func(s *Statement) {
		if state[s] == 0 {
			state[s] = 1
			resolve(s.Expr)
			state[s] = 2
		}
	}
	seen := map[Expr]bool{} // shared expressions are resolved once
	resolve = func(e Expr) {
		switch e.(type) {
		case *Call, *Alternatives:
			if seen[e] {
				return
			}
			seen[e] = true
		}
		switch e := e.(type) {
		case *Name:
			identify(&e.id)
			e.Slot = pat.slot(e.Name)
			if s := pat.stmts[e.Name]; s != nil {
				e.Def, e.Output = s, -1
				if len(s.Names) > 1 {
					e.Output = slices.Index(s.Names, e.Name)
				}
				if state[s] == 1 {
					p.failf(s.pos, "%s is defined by itself", e.Name)
				}
				define(s)
			}
		case *Call:
			identify(&e.id)
			for _, a := range e.Args {
				resolve(a)
			}
		case *Alternatives:
			identify(&e.id)
			for _, b := range e.Branches {
				resolve(b.Expr)
			}
		}
	}
	for _, s := range pat.stmts {
		define(s)
	}
	p.bound(pat)
	for _, n := range pat.Results {
		if pat.stmts[n] == nil {
			p.failf(pat.Pos, "no statement defines the result %s of pattern %s", n, pat.Name)
		}
	}
	if f := pat.Target.Call.Function; f != nil && len(f.Results) != len(pat.Results) {
		p.failf(pat.Target.Call.pos, "function %s has %d results, pattern %s has %d", pat.Target.Call.Name(),
			len(f.Results), pat.Name, len(pat.Results))
	}
	pat.Target.Call.Walk(func(c *TargetCall) {
		for _, a := range c.Args {
			if n, ok := a.(*Name); ok {
				if n.Slot, ok = pat.Slots[n.Name]; !ok {
					p.failf(c.pos, "pattern %s: argument %s of the target is not defined", pat.Name, n.Name)
				}
			}
		}
	})
	check := func(e Cond) {
		Walk(e, func(c Cond) {
			n, ok := c.(*CondName)
			if !ok {
				return
			}
			_, slot := pat.Slots[n.Name]
			_, n.IsTag = pat.Tags[n.Name]
			if !slot && !n.IsTag {
				p.failf(n.pos, "%s is not defined in pattern %s", n.Name, pat.Name)
			}
		})
	}
	for _, c := range pat.Where {
		check(c.Expr)
	}
	pat.Target.Call.Walk(func(c *TargetCall) {
		for _, a := range c.Args {
			if l, ok := a.(*List); ok {
				check(l.List)
			}
		}
		for _, a := range c.Attrs {
			check(a.Expr)
		}
	})
}

func (pat *Pattern) slot(name string) int {
	s, ok := pat.Slots[name]
	if !ok {
		s = len(pat.Slots)
		pat.Slots[name] = s
	}
	return s
}
