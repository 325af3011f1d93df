package patterns

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// target parses the right side of a pattern.
func (p *parser) target() Target {
	t := Target{call: p.targetCall(p.name("domain.Op"))}
	t.main = t.call
	found := false
	t.call.walk(func(c *targetCall) {
		if !found && !onnx.IsStandardDomain(c.domain) {
			t.main, found = c, true
		}
	})
	t.Domain, t.Op = t.main.domain, t.main.op
	return t
}

// targetCall parses a node to be made, from behind its name.
func (p *parser) targetCall(t token) *targetCall {
	dot := lastDot(t.text)
	c := &targetCall{op: t.text[dot+1:], pos: t.pos, function: p.definitions[t.text]}
	if dot >= 0 {
		c.domain = t.text[:dot]
	}
	p.expect("(")
	for !p.is(")") && !p.is(";") {
		c.args = append(c.args, p.operand())
		if !p.is(")") && !p.is(";") {
			p.expect(",")
		}
	}
	if p.accept(";") {
		for {
			n := p.name("an attribute")
			p.expect("=")
			c.attrs = append(c.attrs, targetAttr{n.text, p.attrValue()})
			if !p.accept(",") {
				break
			}
		}
	}
	p.expect(")")
	if c.function != nil {
		c.function.checkCall(p, c)
	}
	return c
}

// operand parses an argument of a node to be made.
func (p *parser) operand() expr {
	t := p.next()
	switch {
	case t.kind == tokPunct && t.text == "[":
		return &listExpr{p.list()}
	case t.kind == tokPunct && t.text == "_":
		return wildcardExpr{}
	case t.kind == tokNumber, t.kind == tokPunct && t.text == "-":
		return &numberExpr{p.number(t)}
	case t.kind == tokName && p.is("("):
		return p.targetCall(t)
	case t.kind == tokName, t.kind == tokCapture:
		return &nameExpr{name: t.text}
	}
	p.failf(t.pos, "expected a name, a number, a list of integers or a call, found %s", t)
	return nil
}

// attrValue parses the value of an attribute of a node to be made.
func (p *parser) attrValue() condExpr {
	switch t := p.peek(); {
	case p.accept("["):
		return p.list()
	case t.kind == tokCapture:
		p.next()
		return &condName{name: t.text, pos: t.pos}
	}
	return p.cond()
}

// list parses a list of integers, from behind its bracket.
func (p *parser) list() *condList {
	l := &condList{}
	for !p.accept("]") {
		if len(l.items) > 0 {
			p.expect(",")
		}
		l.items = append(l.items, p.cond())
	}
	return l
}

// condList is a list of integers of a node to be made: numbers, and what is computed from the match.
type condList struct{ items []condExpr }

func (e *condList) walk(f func(condExpr)) {
	f(e)
	for _, x := range e.items {
		x.walk(f)
	}
}

func (e *condList) String() string {
	items := make([]string, len(e.items))
	for i, x := range e.items {
		items[i] = x.String()
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func (e *condList) eval(s *state) (any, error) {
	list := make([]int64, len(e.items))
	for i, x := range e.items {
		v, err := x.eval(s)
		if err != nil {
			return nil, err
		}
		f, ok := v.(float64)
		if list[i] = int64(f); !ok || f != float64(list[i]) {
			return nil, fmt.Errorf("%s is %v, which is no integer", x, v)
		}
	}
	return list, nil
}

// listExpr is such a list as an operand.
type listExpr struct{ list *condList }

func (e *listExpr) String() string { return e.list.String() }

// walk calls f for the call and those in its arguments, as they are written from left to right.
func (c *targetCall) walk(f func(*targetCall)) {
	f(c)
	for _, a := range c.args {
		if inner, ok := a.(*targetCall); ok {
			inner.walk(f)
		}
	}
}

// String writes the call as in a pattern file.
func (c *targetCall) String() string {
	args := make([]string, len(c.args))
	for i, a := range c.args {
		args[i] = a.String()
	}
	s := c.name() + "(" + strings.Join(args, ", ")
	for i, a := range c.attrs {
		sep := ", "
		if i == 0 {
			sep = "; "
		}
		s += sep + a.name + "=" + a.expr.String()
	}
	return s + ")"
}

// name is the op with its domain.
func (c *targetCall) name() string {
	if c.domain == "" {
		return c.op
	}
	return c.domain + "." + c.op
}
