package notation

import (
	"maps"
	"slices"
	"strings"
)

// A Condition is one conjunct of a where clause, with its text for explanations.
type Condition struct {
	Expr Cond
	Text string
}

// A Cond is an expression of a where clause, or of an attribute or a list of a target. Its value is a float64, a
// string, a bool, a list ([]int64), or a value of the graph. Integer literals and functions return integral float64s.
type Cond interface{ String() string }

type (
	// CondName is a name of the pattern.
	CondName struct {
		Name  string
		IsTag bool // it comes after "as", and is 0 or 1

		pos Pos
	}
	// CondNumber is a number.
	CondNumber struct {
		Value float64
		Float bool // written with a point or exponent: a FLOAT attribute
	}
	// CondString is a text.
	CondString struct{ Value string } // without its quotes
	// CondUnary is !X or -X.
	CondUnary struct {
		Op string
		X  Cond
	}
	// CondBinary is X Op Y.
	CondBinary struct {
		Op   string
		X, Y Cond
	}
	// CondCall is a call of a function of conditions.
	CondCall struct {
		Name string
		Args []Cond
	}
	// CondList is a list of integers of a target: numbers, or expressions of the match.
	CondList struct{ Items []Cond } // in brackets
)

// Compares reports whether the operator is a comparison.
func (e *CondBinary) Compares() bool { return precedence[e.Op] == precedence["=="] }

// Walk calls f for an expression and all its parts, from left to right.
func Walk(e Cond, f func(Cond)) {
	f(e)
	var inner []Cond
	switch e := e.(type) {
	case *CondUnary:
		inner = []Cond{e.X}
	case *CondBinary:
		inner = []Cond{e.X, e.Y}
	case *CondCall:
		inner = e.Args
	case *CondList:
		inner = e.Items
	}
	for _, x := range inner {
		Walk(x, f)
	}
}

// Condition parses a single condition, such as one to add to a pattern. Errors are of type *Error.
func (s *Scope) Condition(text string) (c Condition, err error) {
	toks, err := lex("condition", text)
	if err != nil {
		return c, err
	}
	p := &parser{toks: toks, scope: s}
	err = p.catch(func() {
		c = Condition{p.cond(), text}
		if t := p.next(); t.kind != tokEOF {
			p.failf(t.pos, "expected the end of the condition, found %s", t)
		}
	})
	return c, err
}

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

func (p *parser) cond() Cond { return p.binary(1) }

func (p *parser) binary(min int) Cond {
	var x Cond
	p.nested(func() { x = p.unary() })
	for n := 0; ; n++ {
		if n > maxOperators {
			p.failf(p.peek().pos, "a condition has more than %d operators in a row", maxOperators)
		}
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
		var x Cond
		p.nested(func() { x = p.unary() })
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
		p.failf(t.pos, "unknown function %s; the functions are %s", t.text,
			strings.Join(slices.Sorted(maps.Keys(p.scope.conditions)), ", "))
	}
	c := &CondCall{Name: t.text}
	p.expect("(")
	p.list(")", func() { c.Args = append(c.Args, p.cond()) })
	if len(c.Args) != want {
		p.failf(t.pos, "%s takes %d arguments, found %d", t.text, want, len(c.Args))
	}
	return c
}
