package notation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Condition is one conjunct of a where clause, with its text for explanations.
type Condition struct {
	Expr Cond
	Text string
}

// Cond is an expression of a where clause or a target's attribute. Its value is a float64, a string or a bool;
// integer literals and functions give integral float64s.
type Cond interface {
	Walk(func(Cond))
	String() string
}

type (
	CondName struct {
		Name  string
		pos   Pos
		IsTag bool
	}
	CondNumber struct {
		Value float64
		Float bool // written with a point or exponent: a FLOAT attribute
	}
	CondString struct{ Value string }
	CondUnary  struct {
		Op string
		X  Cond
	}
	CondBinary struct {
		Op   string
		X, Y Cond
	}
	CondCall struct {
		Name string
		Args []Cond
	}
)

// conjuncts parses the where clause and splits it at its outer &&.
func (p *parser) conjuncts() []Condition {
	var cs []Condition
	var split func(e Cond)
	split = func(e Cond) {
		if b, ok := e.(*CondBinary); ok && b.Op == "&&" {
			split(b.X)
			split(b.Y)
			return
		}
		cs = append(cs, Condition{e, e.String()})
	}
	split(p.cond())
	return cs
}

var precedence = map[string]int{"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3,
	"+": 4, "-": 4, "*": 5, "/": 5, "%": 5}

// Compares reports whether the operator is a comparison.
func (e *CondBinary) Compares() bool { return precedence[e.Op] == precedence["=="] }

func (p *parser) cond() Cond { return p.binary(1) }

func (p *parser) binary(min int) Cond {
	x := p.unary()
	for {
		t := p.peek()
		prec := precedence[t.text]
		if t.kind != tokPunct || prec < min || prec == 0 {
			return x
		}
		p.next()
		x = &CondBinary{t.text, x, p.binary(prec + 1)}
	}
}

func (p *parser) unary() Cond {
	t := p.next()
	switch {
	case t.kind == tokPunct && (t.text == "!" || t.text == "-"):
		x := p.unary()
		if n, ok := x.(*CondNumber); ok && t.text == "-" {
			return &CondNumber{-n.Value, n.Float}
		}
		return &CondUnary{t.text, x}
	case t.kind == tokPunct && t.text == "(":
		x := p.cond()
		p.expect(")")
		return x
	case t.kind == tokNumber:
		return &CondNumber{p.number(t), strings.ContainsAny(t.text, ".eE")}
	case t.kind == tokString:
		return &CondString{t.text}
	case t.kind == tokName && p.is("("):
		return p.condCall(t)
	case t.kind == tokName:
		return &CondName{Name: t.text, pos: t.pos}
	}
	p.failf(t.pos, "expected a condition, found %s", t)
	return nil
}

func (p *parser) condCall(t token) Cond {
	want, ok := p.scope.conditions[t.text]
	if !ok {
		p.failf(t.pos, "there is no function %s; there are %s", t.text, strings.Join(slices.Sorted(maps.Keys(p.scope.conditions)), ", "))
	}
	c := &CondCall{Name: t.text}
	p.expect("(")
	for !p.accept(")") {
		c.Args = append(c.Args, p.cond())
		if !p.is(")") {
			p.expect(",")
		}
	}
	if len(c.Args) != want {
		p.failf(t.pos, "%s takes %d arguments, found %d", t.text, want, len(c.Args))
	}
	return c
}

func (e *CondName) Walk(f func(Cond))   { f(e) }
func (e *CondNumber) Walk(f func(Cond)) { f(e) }
func (e *CondString) Walk(f func(Cond)) { f(e) }
func (e *CondUnary) Walk(f func(Cond))  { f(e); e.X.Walk(f) }
func (e *CondBinary) Walk(f func(Cond)) { f(e); e.X.Walk(f); e.Y.Walk(f) }
func (e *CondCall) Walk(f func(Cond)) {
	f(e)
	for _, a := range e.Args {
		a.Walk(f)
	}
}

func (e *CondName) String() string { return e.Name }
func (e *CondNumber) String() string {
	s := (&Number{e.Value}).String()
	if e.Float && !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}
func (e *CondString) String() string { return fmt.Sprintf("%q", e.Value) }
func (e *CondUnary) String() string  { return e.Op + e.X.String() }
func (e *CondBinary) String() string { return e.X.String() + " " + e.Op + " " + e.Y.String() }
func (e *CondCall) String() string {
	args := make([]string, len(e.Args))
	for i, a := range e.Args {
		args[i] = a.String()
	}
	return e.Name + "(" + strings.Join(args, ", ") + ")"
}
