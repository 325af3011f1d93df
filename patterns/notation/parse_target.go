package notation

import (
	"github.com/mojo-patch/mojo-patch/onnx"
)

// target parses the right side of a pattern.
func (p *parser) target() Target {
	call := p.targetCall(p.name("domain.Op"))
	main := call.Main()
	return Target{Domain: main.Domain, Op: main.Op, Call: call, Main: main}
}

// Main returns the first call outside the standard's domain among c and its arguments, or else c.
func (c *TargetCall) Main() *TargetCall {
	main := c
	c.Walk(func(c *TargetCall) {
		if onnx.IsStandardDomain(main.Domain) && !onnx.IsStandardDomain(c.Domain) {
			main = c
		}
	})
	return main
}

// targetCall parses a node to create, after its name.
func (p *parser) targetCall(t token) *TargetCall {
	c := &TargetCall{pos: t.pos, Function: p.scope.definitions[t.text]}
	c.Domain, c.Op = qualified(t.text)
	p.expect("(")
	p.nested(func() {
		for !p.is(")") && !p.is(";") {
			c.Args = append(c.Args, p.operand())
			if !p.is(")") && !p.is(";") {
				p.expect(",")
			}
		}
	})
	if p.accept(";") {
		for {
			n := p.name("an attribute")
			p.expect("=")
			c.Attrs = append(c.Attrs, TargetAttr{n.text, p.attrValue()})
			if !p.accept(",") {
				break
			}
		}
	}
	p.expect(")")
	if c.Function != nil {
		c.Function.checkCall(p, c)
	}
	return c
}

// operand parses an argument of a node to create.
func (p *parser) operand() Expr {
	t := p.next()
	switch {
	case t.kind == tokPunct && t.text == "[":
		return &List{p.integers()}
	case t.kind == tokPunct && t.text == "_":
		return Wildcard{}
	case t.kind == tokNumber, t.kind == tokPunct && t.text == "-":
		return &Number{p.number(t)}
	case t.kind == tokName && p.is("("):
		return p.targetCall(t)
	case t.kind == tokName, t.kind == tokCapture:
		return &Name{Name: t.text}
	}
	p.failf(t.pos, "expected a name, a number, a list of integers or a call, found %s", t)
	return nil
}

// attrValue parses the value of an attribute of a node to create.
func (p *parser) attrValue() Cond {
	switch t := p.peek(); {
	case p.accept("["):
		return p.integers()
	case t.kind == tokCapture:
		p.next()
		return &CondName{Name: t.text, pos: t.pos}
	}
	return p.cond()
}

// integers parses a list of integers, after its bracket.
func (p *parser) integers() *CondList {
	l := &CondList{}
	p.list("]", func() { l.Items = append(l.Items, p.cond()) })
	return l
}

// List is a list of integers as an operand.
type List struct{ List *CondList }

// Walk calls f for the call and the calls in its arguments, from left to right.
func (c *TargetCall) Walk(f func(*TargetCall)) {
	f(c)
	for _, a := range c.Args {
		if inner, ok := a.(*TargetCall); ok {
			inner.Walk(f)
		}
	}
}

// Name returns the op with its domain.
func (c *TargetCall) Name() string {
	if c.Domain == "" {
		return c.Op
	}
	return c.Domain + "." + c.Op
}
