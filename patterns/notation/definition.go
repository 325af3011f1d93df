package notation

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// A Definition is a function that a pattern file defines: the meaning of an op that a target may call.
type Definition struct {
	Domain, Name    string
	Params, Results []string
	Attributes      []string
	Types           map[string]onnx.AttributeType // of the attributes, from their uses in the body
	Body            []DefinitionStatement         // in an order that defines names before their use

	pos Pos
}

// A DefinitionStatement names the outputs of a node of a function.
type DefinitionStatement struct {
	Names []string
	Call  *TargetCall
}

// ownDomains are domains in which pattern files cannot define functions.
var ownDomains = []string{"", "ai.onnx", "ai.onnx.ml", onnx.Microsoft, "mojo"}

// definition parses a function.
func (p *parser) definition() {
	t := p.name("domain.Name")
	d := &Definition{pos: t.pos, Types: map[string]onnx.AttributeType{}}
	d.Domain, d.Name = qualified(t.text)
	if slices.Contains(ownDomains, d.Domain) {
		p.failf(t.pos, "function %s needs its own domain, as in my.%s", t.text, d.Name)
	}
	if old := p.scope.definitions[t.text]; old != nil {
		p.failf(t.pos, "function %s is defined already, at %s", t.text, old.pos)
	}
	p.expect("(")
	d.Params = p.names("a parameter")
	p.expect(")")
	p.expect("->")
	d.Results = p.names("a result")
	if p.accept("<") {
		d.Attributes = p.names("an attribute")
		p.expect(">")
	}
	p.expect("{")
	known := map[string]bool{}
	for _, n := range d.Params {
		known[n] = true
	}
	for !p.accept("}") {
		pos := p.peek().pos
		s := DefinitionStatement{Names: p.names("a name")}
		p.expect("=")
		s.Call = p.targetCall(p.name("an op of the standard"))
		d.check(p, s.Call, known)
		for _, n := range s.Names {
			if known[n] || slices.Contains(d.Attributes, n) {
				p.failf(pos, "%s is defined twice", n)
			}
			known[n] = true
		}
		d.Body = append(d.Body, s)
	}
	for _, n := range d.Results {
		if !known[n] || slices.Contains(d.Params, n) {
			p.failf(d.pos, "no statement defines the result %s of function %s", n, t.text)
		}
	}
	for _, n := range d.Attributes {
		if _, used := d.Types[n]; !used {
			p.failf(d.pos, "function %s does not use its attribute %s", t.text, n)
		}
	}
	p.scope.definitions[t.text] = d
}

// check checks the names in a call of the body, and learns the types of attributes from it.
func (d *Definition) check(p *parser, c *TargetCall, known map[string]bool) {
	if !onnx.IsStandardDomain(c.Domain) {
		p.failf(c.pos, "the body of a function calls only standard ops, found %s", c.Name())
	}
	uses := func(pos Pos, name string, t onnx.AttributeType) {
		if old, ok := d.Types[name]; ok && old != t {
			p.failf(pos, "attribute %s of function %s.%s is used as a float and as an integer", name, d.Domain, d.Name)
		}
		d.Types[name] = t
	}
	for _, a := range c.Args {
		switch a := a.(type) {
		case *TargetCall:
			d.check(p, a, known)
		case *Name:
			switch {
			case slices.Contains(d.Attributes, a.Name):
				uses(c.pos, a.Name, onnx.AttrFloat)
			case !known[a.Name]:
				p.failf(c.pos, "%s is not defined before it is used in function %s.%s", a.Name, d.Domain, d.Name)
			}
		}
	}
	plain := func(what string, e Cond) {
		Walk(e, func(x Cond) {
			switch x.(type) {
			case *CondName, *CondCall:
				p.failf(c.pos, "%s: a function takes only numbers, strings, lists and its own attributes here", what)
			}
		})
	}
	for _, a := range c.Args {
		if l, ok := a.(*List); ok {
			plain(l.String(), l.List)
		}
	}
	for _, a := range c.Attrs {
		if n, ok := a.Expr.(*CondName); ok && slices.Contains(d.Attributes, n.Name) {
			uses(n.pos, n.Name, AttributeType(a.Name))
			continue
		}
		plain("attribute "+a.Name+"="+a.Expr.String(), a.Expr)
	}
}

// checkCall fails for an invalid call of the function in a target.
func (d *Definition) checkCall(p *parser, c *TargetCall) {
	if len(c.Args) != len(d.Params) {
		p.failf(c.pos, "function %s takes %d arguments, found %d", c.Name(), len(d.Params), len(c.Args))
	}
	for _, a := range c.Attrs {
		if !slices.Contains(d.Attributes, a.Name) {
			p.failf(c.pos, "function %s has no attribute %s", c.Name(), a.Name)
		}
	}
	for _, name := range d.Attributes {
		if !slices.ContainsFunc(c.Attrs, func(a TargetAttr) bool { return a.Name == name }) {
			p.failf(c.pos, "function %s needs the attribute %s", c.Name(), name)
		}
	}
}
