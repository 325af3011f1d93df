package patterns

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// definition is a function that a pattern file gives: the meaning of an op that a target may call.
type definition struct {
	domain, name    string
	pos             Pos
	params, results []string
	attributes      []string
	types           map[string]onnx.AttributeType // of the attributes, from where the body uses them
	body            []definitionStmt
}

type definitionStmt struct {
	names []string
	call  *targetCall
}

// ownDomains are those that functions of pattern files cannot be of.
var ownDomains = []string{"", "ai.onnx", "ai.onnx.ml", "com.microsoft", "mojo"}

// definition parses a function.
func (p *parser) definition() {
	t := p.name("domain.Name")
	dot := lastDot(t.text)
	d := &definition{name: t.text[dot+1:], pos: t.pos, types: map[string]onnx.AttributeType{}}
	if dot >= 0 {
		d.domain = t.text[:dot]
	}
	if slices.Contains(ownDomains, d.domain) {
		p.failf(t.pos, "function %s needs a domain of its own, as in my.%s", t.text, d.name)
	}
	if old := p.definitions[t.text]; old != nil {
		p.failf(t.pos, "function %s is defined already, at %s", t.text, old.pos)
	}
	p.expect("(")
	d.params = p.names("a parameter")
	p.expect(")")
	p.expect("->")
	d.results = p.names("a result")
	if p.accept("<") {
		d.attributes = p.names("an attribute")
		p.expect(">")
	}
	p.expect("{")
	known := map[string]bool{}
	for _, n := range d.params {
		known[n] = true
	}
	for !p.accept("}") {
		pos := p.peek().pos
		s := definitionStmt{names: p.names("a name")}
		p.expect("=")
		s.call = p.targetCall(p.name("an op of the standard"))
		d.check(p, s.call, known)
		for _, n := range s.names {
			if known[n] || slices.Contains(d.attributes, n) {
				p.failf(pos, "%s is defined twice", n)
			}
			known[n] = true
		}
		d.body = append(d.body, s)
	}
	for _, n := range d.results {
		if !known[n] || slices.Contains(d.params, n) {
			p.failf(d.pos, "result %s of function %s is made by no statement", n, t.text)
		}
	}
	for _, n := range d.attributes {
		if _, used := d.types[n]; !used {
			p.failf(d.pos, "function %s does not use its attribute %s", t.text, n)
		}
	}
	p.definitions[t.text] = d
}

// check looks at the names of a call in the body, and learns the types of attributes from it.
func (d *definition) check(p *parser, c *targetCall, known map[string]bool) {
	if !onnx.IsStandardDomain(c.domain) {
		p.failf(c.pos, "the body of a function calls ops of the standard alone, found %s", c.name())
	}
	uses := func(pos Pos, name string, t onnx.AttributeType) {
		if old, ok := d.types[name]; ok && old != t {
			p.failf(pos, "attribute %s of function %s.%s is used as a float and as an integer", name, d.domain, d.name)
		}
		d.types[name] = t
	}
	for _, a := range c.args {
		switch a := a.(type) {
		case *targetCall:
			d.check(p, a, known)
		case *nameExpr:
			switch {
			case slices.Contains(d.attributes, a.name):
				uses(c.pos, a.name, onnx.AttrFloat)
			case !known[a.name]:
				p.failf(c.pos, "%s is not defined before it is used in function %s.%s", a.name, d.domain, d.name)
			}
		}
	}
	plain := func(what string, e condExpr) {
		e.walk(func(x condExpr) {
			switch x.(type) {
			case *condName, *condCall:
				p.failf(c.pos, "%s: a function has numbers, strings, lists and its attributes by themselves", what)
			}
		})
	}
	for _, a := range c.args {
		if l, ok := a.(*listExpr); ok {
			plain(l.String(), l.list)
		}
	}
	for _, a := range c.attrs {
		if n, ok := a.expr.(*condName); ok && slices.Contains(d.attributes, n.name) {
			uses(n.pos, n.name, attributeType(a.name))
			continue
		}
		plain("attribute "+a.name+"="+a.expr.String(), a.expr)
	}
}

// checkCall says what is wrong with a call of the function in a target.
func (d *definition) checkCall(p *parser, c *targetCall) {
	if len(c.args) != len(d.params) {
		p.failf(c.pos, "function %s takes %d arguments, found %d", c.name(), len(d.params), len(c.args))
	}
	for _, a := range c.attrs {
		if !slices.Contains(d.attributes, a.name) {
			p.failf(c.pos, "function %s has no attribute %s", c.name(), a.name)
		}
	}
	for _, name := range d.attributes {
		if !slices.ContainsFunc(c.attrs, func(a targetAttr) bool { return a.name == name }) {
			p.failf(c.pos, "function %s needs the attribute %s", c.name(), name)
		}
	}
}

func attributeType(name string) onnx.AttributeType {
	if floatAttributes[name] {
		return onnx.AttrFloat
	}
	return onnx.AttrInt
}

// build writes the function for a version of the standard. Without CastLike its numbers are of the types that the inputs
// have where it is called, which the overload names.
func (d *definition) build(facts *infer.Facts, inputs []*onnx.Value) (*onnx.Function, error) {
	opset := facts.Opset()
	f := onnx.NewFunction(d.domain, d.name, d.overload(facts, inputs), opset)
	f.Attributes = d.attributes
	b := &builder{g: f.Body, opset: opset, names: map[string]operand{}, refs: map[string]*onnx.Value{}}
	if opset < castLikeSince {
		b.typeOf = func(v *onnx.Value) onnx.DataType { return facts.Within(f.Body, inputs).DataType(v) }
	}
	for _, n := range d.params {
		b.names[n] = operand{value: f.Body.AddInput(n, onnx.Type{})}
	}
	for _, n := range d.attributes {
		b.names[n] = operand{ref: n}
	}
	b.eval = func(e condExpr) (any, error) {
		if n, ok := e.(*condName); ok {
			return attributeRef(n.name), nil
		}
		return e.eval(nil)
	}
	for _, s := range d.body {
		outs, err := b.call(s.call, s.names)
		if err != nil {
			return nil, fmt.Errorf("function %s.%s: %w", d.domain, d.name, err)
		}
		for i, n := range s.names {
			b.names[n] = operand{value: outs[i]}
		}
	}
	for _, n := range d.results {
		f.Body.AddOutput(b.names[n].value)
	}
	return f, nil
}

// attributeRef is the value of an attribute that is one of the function's.
type attributeRef string

func (d *definition) overload(facts *infer.Facts, inputs []*onnx.Value) string {
	if facts.Opset() >= castLikeSince {
		return ""
	}
	types := make([]string, len(inputs))
	for i, v := range inputs {
		types[i] = facts.DataType(v).String()
	}
	return strings.Join(types, "_")
}
