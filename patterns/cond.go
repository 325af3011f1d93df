package patterns

import (
	"fmt"
	"strings"
)

// cond is one conjunct of a where clause, with its text for explanations.
type cond struct {
	expr condExpr
	text string
}

// condExpr is an expression of a where clause or a target's attribute. Its value is a float64, a string or a bool;
// integer literals and functions give integral float64s.
type condExpr interface {
	eval(s *state) (any, error)
	walk(func(condExpr))
	String() string
}

type (
	condName struct {
		name  string
		pos   Pos
		isTag bool
	}
	condNumber struct {
		value float64
		float bool // written with a point or exponent: a FLOAT attribute
	}
	condString struct{ value string }
	condUnary  struct {
		op string
		x  condExpr
	}
	condBinary struct {
		op   string
		x, y condExpr
	}
	condCall struct {
		name string
		args []condExpr
		fn   function
	}
)

// conjuncts parses the where clause and splits it at its outer &&.
func (p *parser) conjuncts() []cond {
	var cs []cond
	var split func(e condExpr)
	split = func(e condExpr) {
		if b, ok := e.(*condBinary); ok && b.op == "&&" {
			split(b.x)
			split(b.y)
			return
		}
		cs = append(cs, cond{e, e.String()})
	}
	split(p.cond())
	return cs
}

var precedence = map[string]int{"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3,
	"+": 4, "-": 4, "*": 5, "/": 5, "%": 5}

func (p *parser) cond() condExpr { return p.binary(1) }

func (p *parser) binary(min int) condExpr {
	x := p.unary()
	for {
		t := p.peek()
		prec := precedence[t.text]
		if t.kind != tokPunct || prec < min || prec == 0 {
			return x
		}
		p.next()
		x = &condBinary{t.text, x, p.binary(prec + 1)}
	}
}

func (p *parser) unary() condExpr {
	t := p.next()
	switch {
	case t.kind == tokPunct && (t.text == "!" || t.text == "-"):
		x := p.unary()
		if n, ok := x.(*condNumber); ok && t.text == "-" {
			return &condNumber{-n.value, n.float}
		}
		return &condUnary{t.text, x}
	case t.kind == tokPunct && t.text == "(":
		x := p.cond()
		p.expect(")")
		return x
	case t.kind == tokNumber:
		return &condNumber{p.number(t), strings.ContainsAny(t.text, ".eE")}
	case t.kind == tokString:
		return &condString{t.text}
	case t.kind == tokName && p.is("("):
		return p.condCall(t)
	case t.kind == tokName:
		return &condName{name: t.text, pos: t.pos}
	}
	p.failf(t.pos, "expected a condition, found %s", t)
	return nil
}

func (p *parser) condCall(t token) condExpr {
	f, ok := functions[t.text]
	if !ok {
		p.failf(t.pos, "there is no function %s; there are %s", t.text, strings.Join(functionNames(), ", "))
	}
	c := &condCall{name: t.text, fn: f}
	p.expect("(")
	for !p.accept(")") {
		c.args = append(c.args, p.cond())
		if !p.is(")") {
			p.expect(",")
		}
	}
	if len(c.args) != f.args {
		p.failf(t.pos, "%s takes %d arguments, found %d", t.text, f.args, len(c.args))
	}
	return c
}

func (e *condName) walk(f func(condExpr))   { f(e) }
func (e *condNumber) walk(f func(condExpr)) { f(e) }
func (e *condString) walk(f func(condExpr)) { f(e) }
func (e *condUnary) walk(f func(condExpr))  { f(e); e.x.walk(f) }
func (e *condBinary) walk(f func(condExpr)) { f(e); e.x.walk(f); e.y.walk(f) }
func (e *condCall) walk(f func(condExpr)) {
	f(e)
	for _, a := range e.args {
		a.walk(f)
	}
}

func (e *condName) String() string { return e.name }
func (e *condNumber) String() string {
	s := (&numberExpr{e.value}).String()
	if e.float && !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}
func (e *condString) String() string { return fmt.Sprintf("%q", e.value) }
func (e *condUnary) String() string  { return e.op + e.x.String() }
func (e *condBinary) String() string { return e.x.String() + " " + e.op + " " + e.y.String() }
func (e *condCall) String() string {
	args := make([]string, len(e.args))
	for i, a := range e.args {
		args[i] = a.String()
	}
	return e.name + "(" + strings.Join(args, ", ") + ")"
}

// eval of a name gives a capture's number or text, a tag's 0 or 1, or the value bound to it.
func (e *condName) eval(s *state) (any, error) {
	if t, ok := s.pat.tags[e.name]; ok {
		return float64(s.tags[t]), nil
	}
	b := s.slots[s.pat.slots[e.name]]
	switch {
	case b.value != nil:
		return b.value, nil
	case b.captured != nil:
		return b.captured, nil
	}
	return nil, fmt.Errorf("%s was not matched", e.name)
}

func (e *condNumber) eval(*state) (any, error) { return e.value, nil }
func (e *condString) eval(*state) (any, error) { return e.value, nil }

func (e *condUnary) eval(s *state) (any, error) {
	x, err := e.x.eval(s)
	if err != nil {
		return nil, err
	}
	switch v := x.(type) {
	case bool:
		if e.op == "!" {
			return !v, nil
		}
	case float64:
		if e.op == "-" {
			return -v, nil
		}
		return v == 0, nil
	}
	return nil, fmt.Errorf("%s cannot be applied in %s", e.op, e)
}

func (e *condBinary) eval(s *state) (any, error) {
	x, err := e.x.eval(s)
	if err != nil {
		return nil, err
	}
	if e.op == "&&" && !truth(x) || e.op == "||" && truth(x) {
		return truth(x), nil
	}
	y, err := e.y.eval(s)
	if err != nil {
		return nil, err
	}
	if e.op == "&&" || e.op == "||" {
		return truth(y), nil
	}
	if a, ok := x.(string); ok {
		b, ok := y.(string)
		switch {
		case ok && e.op == "==":
			return a == b, nil
		case ok && e.op == "!=":
			return a != b, nil
		}
		return nil, fmt.Errorf("%s compares a text with something else", e)
	}
	a, ok1 := x.(float64)
	b, ok2 := y.(float64)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("%s needs numbers", e)
	}
	return arithmetic(e.op, a, b)
}

func arithmetic(op string, a, b float64) (any, error) {
	switch op {
	case "==":
		return a == b, nil
	case "!=":
		return a != b, nil
	case "<":
		return a < b, nil
	case "<=":
		return a <= b, nil
	case ">":
		return a > b, nil
	case ">=":
		return a >= b, nil
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "/":
		if b == 0 {
			return nil, fmt.Errorf("division by zero")
		}
		return a / b, nil
	}
	if int64(b) == 0 {
		return nil, fmt.Errorf("division by zero")
	}
	return float64(int64(a) % int64(b)), nil
}

func (e *condCall) eval(s *state) (any, error) {
	args := make([]any, len(e.args))
	for i, a := range e.args {
		v, err := a.eval(s)
		if err != nil {
			return nil, err
		}
		args[i] = v
	}
	return e.fn.call(s.g, args)
}

func truth(x any) bool {
	switch v := x.(type) {
	case bool:
		return v
	case float64:
		return v != 0
	}
	return false
}
